"""Confidence intervals of rates, means and paired differences; every row is one independent observation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

CONFIDENCE = 0.95
RESAMPLES = 9_999
"""Bootstrap resamples: the usual number for a 95% interval (SciPy's default)."""
_RESAMPLING_BATCH = 256
"""Resamples drawn at once, so that memory stays flat in the number of rows."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its 95% interval.

    Attributes:
        value: The estimate.
        low: Lower end.
        high: Upper end.
        n: Observations.
    """

    value: float
    low: float
    high: float
    n: int


def wilson(successes: int, n: int) -> Interval:
    """Wilson score interval of a rate (Wilson 1927); [0, 1] when nothing was observed."""
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} successes of {n}")
    if n == 0:
        return Interval(math.nan, 0.0, 1.0, 0)
    interval = stats.binomtest(successes, n).proportion_ci(CONFIDENCE, method="wilson")
    return Interval(successes / n, float(interval.low), float(interval.high), n)


def bootstrap_mean(values: Sequence[float], *, seed: int = 0) -> Interval:
    """Percentile-bootstrap interval of a mean; a single point when all values are equal.

    For paired differences give the differences, row by row. A row's value may itself be a mean over its completions:
    resampling whole rows makes it a cluster bootstrap (Davison and Hinkley 1997, section 3.8).

    Args:
        values: One a row; NaN is a row that has none.
        seed: Of the resampling.
    """
    array = np.asarray(values, dtype=np.float64)
    array = array[~np.isnan(array)]
    if not len(array):
        return Interval(math.nan, math.nan, math.nan, 0)
    mean = float(array.mean())
    if len(array) < 2 or float(np.ptp(array)) == 0.0:
        return Interval(mean, mean, mean, len(array))
    result = stats.bootstrap(
        (array,),
        np.mean,
        confidence_level=CONFIDENCE,
        n_resamples=RESAMPLES,
        batch=_RESAMPLING_BATCH,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    return Interval(mean, float(result.confidence_interval.low), float(result.confidence_interval.high), len(array))


def rate_over_rows(shares: Sequence[float], *, seed: int = 0) -> Interval:
    """Interval of the mean of shares, one a row: Wilson's where every share is 0 or 1, else the bootstrap's.

    With one completion a row every share is 0 or 1. With several, rows that are all solved always, or all never, also
    get Wilson's: a bootstrap of equal values would claim certainty.

    Args:
        shares: One a row, in [0, 1] or on a scale of its own; NaN is a row that has none.
        seed: Of the resampling.
    """
    known = [share for share in shares if not math.isnan(share)]
    if all(share in (0.0, 1.0) for share in known):
        return wilson(round(sum(known)), len(known))
    return bootstrap_mean(known, seed=seed)
