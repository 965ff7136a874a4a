import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import binomtest

from grpo_core.evaluation.intervals import RATE, difference_interval, mean_interval, tango
from grpo_sdk.intervals import wilson


@pytest.mark.parametrize("confidence", [0.95, 0.98])
@pytest.mark.parametrize("n", [1, 7, 40, 10_000])
def test_wilson_without_scipy_is_scipys(n: int, confidence: float) -> None:
    for successes in {0, 1, n // 3, n // 2, n - 1, n}:
        ours = wilson(successes, n, confidence=confidence)
        theirs = binomtest(successes, n).proportion_ci(confidence, "wilson")
        assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=1e-12, rel=0)


def test_more_successes_than_trials_are_refused() -> None:
    with pytest.raises(ValueError, match="6 successes of 5"):
        wilson(6, 5)
    with pytest.raises(ValueError, match="3 gained and 3 lost of 5"):
        tango(3, 3, 5)


def test_without_bounds_a_mean_has_students_interval() -> None:
    # Mean 0.6, deviation 0.1 √2, t of one degree of freedom 12.706: 0.6 ± 12.706 · 0.1.
    two, equal = mean_interval([0.5, 0.7]), mean_interval([0.2] * 3)
    assert (two.low, two.high) == (pytest.approx(0.6 - 1.2706, abs=1e-3), pytest.approx(0.6 + 1.2706, abs=1e-3))
    assert equal.value == pytest.approx(0.2) and math.isnan(equal.low) and math.isnan(equal.high)


def test_within_bounds_it_is_wilsons_with_the_effective_number() -> None:
    # Shares of mean 0.5 and variance s²: p(1 - p) / (s² / n) rows of one completion, with t in place of z.
    shares = [0.25, 0.75] * 5
    deviation2, t = 0.0625 * 10 / 9, 2.262157
    effective = 0.25 / (deviation2 / 10)
    half = t * math.sqrt(effective * 0.25 + t**2 / 4) / (effective + t**2)
    found = mean_interval(shares, RATE)
    assert (found.low, found.high) == (pytest.approx(0.5 - half, abs=1e-6), pytest.approx(0.5 + half, abs=1e-6))
    doubled = mean_interval([2 * share for share in shares], (0.0, 2.0))
    assert (doubled.low, doubled.high) == (pytest.approx(2 * found.low), pytest.approx(2 * found.high))
    assert mean_interval([0.0, 2.0, 2.0], (0.0, 2.0)).low == pytest.approx(2 * wilson(2, 3).low)
    assert mean_interval([0.5] * 6, RATE) == wilson(3, 6)
    assert mean_interval([0.5, 5.0], RATE).high > 5, "a bound that a value is beyond does not count"


@pytest.mark.parametrize("n", [3, 5, 20])
def test_few_values_are_covered_as_often_as_is_said(n: int) -> None:
    drawn = np.random.default_rng(1).binomial(8, 0.5, size=(1_000, n)) / 8
    intervals = [mean_interval(row, RATE) for row in drawn]
    assert sum(each.low <= 0.5 <= each.high for each in intervals) > 930


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40), st.floats(-5, 5), st.floats(0.1, 5))
def test_every_interval_lies_within_what_is_possible(shares: list[float], low: float, width: float) -> None:
    bounds = (low, low + width)
    values = [min(low + width * share, bounds[1]) for share in shares]
    found, rest = mean_interval(values, bounds), mean_interval(values, (low, math.inf))
    rounding = 1e-9
    assert (
        low - rounding <= found.low <= found.value + rounding <= found.high + 2 * rounding <= bounds[1] + 3 * rounding
    )
    assert math.isnan(rest.low) or low - rounding <= rest.low <= rest.value + rounding
    difference = difference_interval([one - other for one, other in zip(values, values[::-1], strict=True)], bounds)
    assert -width - rounding <= difference.low <= rounding <= difference.high + 2 * rounding <= width + 3 * rounding


@pytest.mark.parametrize(("gained", "lost", "n", "confidence", "low", "high"), [
    (9, 3, 32, 0.95, -0.027, 0.390),  # Tango 1998, table II
    (0, 1, 44, 0.90, -0.096, 0.037),  # the same: no row gained
    (16, 8, 86, 0.95, -0.020, 0.207),  # Agresti and Min 2005
    (1, 7, 21, 0.95, -0.517, -0.026),  # Bentur et al. 2009, in Fagerland, Lydersen and Laake 2014
])  # fmt: skip
def test_tangos_interval_is_as_published(
    gained: int, lost: int, n: int, confidence: float, low: float, high: float
) -> None:
    interval = tango(gained, lost, n, confidence=confidence)
    assert interval.value == pytest.approx((gained - lost) / n)
    assert (interval.low, interval.high) == (pytest.approx(low, abs=5e-4), pytest.approx(high, abs=5e-4))


def test_rows_that_all_differ_alike_or_not_at_all_are_not_certain() -> None:
    # With no gain and no loss: ±z² / (n + z²), 3.8415 / 13.8415.
    none = difference_interval([0.0] * 10, RATE)
    assert (none.low, none.value, none.high, none.n) == (pytest.approx(-0.2775, abs=1e-4), 0.0, -none.low, 10)
    for share in (0.5, -0.125, 1.0):
        interval = difference_interval([share] * 6, RATE)
        assert -1 <= interval.low <= interval.value <= interval.high <= 1
        assert interval.high - interval.low > 0.1


def test_differences_have_the_scale_of_what_they_are_differences_of() -> None:
    assert difference_interval([2.0, -2.0, 0.0], (0.0, 2.0)).high == pytest.approx(2 * tango(1, 1, 3).high)
    assert difference_interval([0.25, -0.5, math.nan], RATE) == mean_interval([0.25, -0.5], (-1.0, 1.0))
    assert difference_interval([0.25, -0.5]).low < -1, "nothing is known of the rewards"
    assert math.isnan(difference_interval([math.nan], RATE).value)


@given(st.integers(1, 60), st.floats(0, 1), st.floats(0, 1))
def test_laws_of_tangos_interval(n: int, share: float, changed: float) -> None:
    gained, lost = round(n * changed * share), round(n * changed * (1 - share))
    assume(gained + lost <= n)
    interval, mirrored = tango(gained, lost, n), tango(lost, gained, n)
    assert -1 <= interval.low <= interval.value <= interval.high <= 1
    assert interval.high - interval.low > 0
    assert (mirrored.low, mirrored.high) == (pytest.approx(-interval.high), pytest.approx(-interval.low))
    # McNemar's test without correction: 0 is inside if and only if (b - c)² / (b + c) does not exceed z².
    statistic = (gained - lost) ** 2 / (gained + lost) if gained + lost else 0.0
    assume(abs(statistic - 1.959964**2) > 1e-3)
    assert (interval.low <= 0 <= interval.high) == (statistic <= 1.959964**2)
