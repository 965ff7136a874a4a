"""Estimates with their confidence intervals; every trial is one independent observation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its 95% interval.

    Attributes:
        value: The estimate; NaN where nothing was observed.
        low: Lower end; NaN where the observations don't say.
        high: Upper end; NaN where the observations don't say.
        n: Observations.
    """

    value: float
    low: float
    high: float
    n: int

    @property
    def known(self) -> tuple[float | None, float | None, float | None]:
        """Value, low and high; None in place of NaN, which JSON does not have."""
        value, low, high = (None if math.isnan(each) else each for each in (self.value, self.low, self.high))
        return value, low, high

    def as_json(self, name: str, *, low: str = "", high: str = "") -> dict[str, float | None]:
        """Flat keys: `name` and the ends, by default `name_ci_low` and `name_ci_high`."""
        return dict(zip((name, low or f"{name}_ci_low", high or f"{name}_ci_high"), self.known, strict=True))


UNKNOWN = Interval(math.nan, math.nan, math.nan, 0)


def normal_quantile(confidence: float) -> float:
    """Z at which a standard normal variable is within ±z with this probability."""
    return NormalDist().inv_cdf((1 + confidence) / 2)


def wilson(successes: float, n: int, *, confidence: float = CONFIDENCE) -> Interval:
    """Wilson score interval of a rate (Wilson 1927); [0, 1] when nothing was observed.

    Solves |p̂ - p| = z √(p(1 - p) / n) for p. Of all variables in [0, 1] with mean p a rate has the largest variance,
    p(1 - p); so for n shares with the sum `successes`, which need not be a whole number, the interval is too wide
    rather than too narrow.

    Args:
        successes: Number of successes, or the sum of shares.
        n: Number of trials.
        confidence: Coverage.
    """
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} successes of {n}")
    if n == 0:
        return Interval(math.nan, 0.0, 1.0, 0)
    z2, rate = normal_quantile(confidence) ** 2, successes / n
    centre = (successes + z2 / 2) / (n + z2)
    half = math.sqrt(z2 * (n * rate * (1 - rate) + z2 / 4)) / (n + z2)
    return Interval(rate, 0.0 if successes == 0 else centre - half, 1.0 if successes == n else centre + half, n)
