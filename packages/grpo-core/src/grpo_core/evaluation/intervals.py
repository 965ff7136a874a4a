"""Confidence intervals of rates, means and paired differences; every row is one independent observation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit  # not scipy.stats, whose import takes seconds

from grpo_sdk.intervals import CONFIDENCE, Interval, normal_quantile, wilson

Bounds = tuple[float, float]
"""Smallest and largest possible value; infinite where it is not known."""
UNBOUNDED: Bounds = (-math.inf, math.inf)
RATE: Bounds = (0.0, 1.0)
_ROUNDING = 1e-6
"""Distance from a bound that is rounding."""
_BESIDE = 1e-9
"""Distance from the estimate at which the search for an interval's end begins."""


def tango(gained: float, lost: float, n: int, *, confidence: float = CONFIDENCE) -> Interval:
    """Score interval of a difference of two rates over the same rows (Tango 1998, Statistics in Medicine 17:891-908).

    With b rows gained, c lost and the rest equal, it holds each difference d at which
    |b - c - n d| ≤ z √(n (2q + d(1 - d))), where q is the maximum-likelihood probability of a loss under d:
    the positive root of 2n q² + ((2n - b + c) d - b - c) q - c d(1 - d) = 0. Where no row differs it is
    ±z² / (n + z²), never [0, 0].

    As Wilson's, it takes sums of shares, too: the variance that it assumes is the largest that differences in [-1, 1]
    with these sums have.

    Args:
        gained: Rows that are solved now and were not, or the sum of the positive differences.
        lost: Rows that were solved and are not now, or the sum of the negative differences without their sign.
        n: Rows; must be at least 1.
        confidence: Coverage.
    """
    from scipy.optimize import brentq  # a second to import

    if n < 1 or min(gained, lost) < 0 or gained + lost > n:
        raise ValueError(f"{gained} gained and {lost} lost of {n}")
    z, value = normal_quantile(confidence), (gained - lost) / n

    def excess(difference: float, sign: int) -> float:
        """Above 0 where the difference is too far from the estimate on this side."""
        linear = (2 * n - gained + lost) * difference - gained - lost
        constant = -lost * difference * (1 - difference)
        loss = (math.sqrt(max(0.0, linear**2 - 8 * n * constant)) - linear) / (4 * n)
        variance = n * (2 * loss + difference * (1 - difference))
        return sign * (n * difference - (gained - lost)) - z * math.sqrt(max(0.0, variance))

    def end(sign: int) -> float:
        """The zero of the excess between the estimate and ±1; where no row differs, the estimate is another one."""
        room = 1 - sign * value
        beside = value + sign * min(_BESIDE, room / 2)
        return float(brentq(excess, beside, float(sign), args=(sign,))) if room > 0 else float(sign)

    return Interval(value, end(-1), end(1), n)


def mean_interval(values: Sequence[float] | NDArray[np.float64], bounds: Bounds = UNBOUNDED) -> Interval:
    """Score interval of a mean, between the smallest and the largest possible value.

    With the mean m of n values, their variance s² and Student's t it holds each μ at which
    (m - μ)² ≤ t² s² / n · V(μ) / V(m), V(μ) = (μ - a)(b - μ): Wilson's with the effective number of values (Dean and
    Pagano 2015, Journal of Survey Statistics and Methodology 3), so a row's value may be a mean over completions that
    are alike. Without a or b, V has only the other factor; without both it is Student's interval.

    Values that are all equal, or all a or b, get Wilson's. Equal ones without both bounds have no ends: they say
    nothing of the spread.

    Args:
        values: One value a row; NaN is a row that has none.
        bounds: Smallest and largest possible value, a and b; one that a value is beyond does not count.
    """
    array = np.asarray(values, dtype=np.float64)
    array = array[~np.isnan(array)]
    n = len(array)
    if not n:
        low, high = (end if math.isfinite(end) else math.nan for end in bounds)
        return Interval(math.nan, low, high, 0)
    least, most, mean = float(array.min()), float(array.max()), float(array.mean())
    low = bounds[0] if least >= bounds[0] - _ROUNDING else -math.inf
    high = bounds[1] if most <= bounds[1] + _ROUNDING else math.inf
    width = high - low
    if 0 < width < math.inf and (least == most or set(array.tolist()) <= {low, high}):
        rate = wilson(min(float(n), max(0.0, math.fsum((array - low) / width))), n)
        return Interval(mean, low + width * rate.low, low + width * rate.high, n)
    if n < 2 or least == most or not low < mean < high:
        return Interval(mean, math.nan, math.nan, n)
    error2 = float(stdtrit(n - 1, (1 + CONFIDENCE) / 2)) ** 2 * float(array.var(ddof=1)) / n
    to_low, to_high = 1 / (mean - low), 1 / (high - mean)  # 0 without that bound
    scale = 1 + error2 * to_low * to_high
    shift = error2 * (to_low - to_high) / (2 * scale)
    half = math.sqrt(shift**2 + error2 / scale)
    return Interval(mean, max(low, mean + shift - half), min(high, mean + shift + half), n)


def difference_interval(differences: Sequence[float], bounds: Bounds = UNBOUNDED) -> Interval:
    """Interval of the mean of paired differences: Tango's where they are all equal or whole, else `mean_interval`.

    A difference is whole where it is 0 or the width of the bounds, as that of two rows with one completion each.

    Args:
        differences: One difference a row; NaN is a row that has none.
        bounds: Smallest and largest possible of the values whose differences these are.
    """
    known, width = [each for each in differences if not math.isnan(each)], bounds[1] - bounds[0]
    is_bounded = 0 < width < math.inf and all(abs(each) <= width for each in known)
    if known and is_bounded and (set(known) <= {-width, 0.0, width} or len(set(known)) == 1):
        gained, lost = (math.fsum(max(0.0, sign * each / width) for each in known) for sign in (1, -1))
        rate = tango(gained, lost, len(known))
        return Interval(rate.value * width, rate.low * width, rate.high * width, rate.n)
    return mean_interval(known, (-width, width))


def bounds_in(data: Mapping[str, Any]) -> Bounds:
    """The bounds of the reward in JSON; infinite where they are null, or absent, as of an earlier version."""
    low, high = data.get("reward_bounds") or (None, None)
    return (-math.inf if low is None else low, math.inf if high is None else high)
