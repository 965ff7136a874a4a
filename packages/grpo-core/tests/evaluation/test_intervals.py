import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from grpo_core.evaluation.intervals import bootstrap_mean, rate_difference, rate_over_rows, tango, wilson


def test_wilson_of_known_counts() -> None:
    # Reference-systems 3.4: 2/5 is .12 to .77, 5/5 is .57 to 1.0.
    two, five = wilson(2, 5), wilson(5, 5)
    assert (round(two.low, 2), round(two.high, 2)) == (0.12, 0.77)
    assert (round(five.low, 2), five.high) == (0.57, 1.0)
    nothing = wilson(0, 0)
    assert math.isnan(nothing.value) and (nothing.low, nothing.high) == (0.0, 1.0)


def test_more_successes_than_trials_are_refused() -> None:
    with pytest.raises(ValueError, match="6 successes of 5"):
        wilson(6, 5)
    with pytest.raises(ValueError, match="3 gained and 3 lost of 5"):
        tango(3, 3, 5)


def test_bootstrap_of_a_coin_is_near_the_normal_interval() -> None:
    values = [0.0, 1.0] * 200
    interval = bootstrap_mean(values)
    half = 1.96 * 0.5 / math.sqrt(400)  # standard error of 400 fair coins
    assert interval.value == 0.5
    assert interval.low == pytest.approx(0.5 - half, abs=0.01)
    assert interval.high == pytest.approx(0.5 + half, abs=0.01)
    assert bootstrap_mean([0.1, 0.5, 0.9, 0.3] * 6, seed=3) == bootstrap_mean([0.1, 0.5, 0.9, 0.3] * 6, seed=3)
    equal = bootstrap_mean([0.2, 0.2, 0.2])
    assert equal.value == pytest.approx(0.2) and math.isnan(equal.low) and math.isnan(equal.high)


def test_few_values_have_students_interval_within_what_is_possible() -> None:
    # Mean 0.6, deviation 0.1 / √2, t of one degree of freedom 12.706: 0.6 ± 1.27.
    assert bootstrap_mean([0.5, 0.7]).high == pytest.approx(0.6 + 12.706 * 0.1, abs=1e-3)
    rate, difference = rate_over_rows([0.5, 0.75]), rate_difference([0.25, -0.5])
    assert (rate.low, rate.value, rate.high) == (0.0, 0.625, 1.0)
    assert (difference.low, difference.value, difference.high) == (-1.0, -0.125, 1.0)


def test_few_shares_are_covered_as_often_as_is_said() -> None:
    drawn = np.random.default_rng(1).binomial(8, 0.5, size=(1_000, 5)) / 8
    intervals = [rate_over_rows([*row]) for row in drawn]
    assert sum(each.low <= 0.5 <= each.high for each in intervals) > 930  # the bootstrap's: 860


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
    none = rate_difference([0.0] * 10)
    assert (none.low, none.value, none.high, none.n) == (pytest.approx(-0.2775, abs=1e-4), 0.0, -none.low, 10)
    for share in (0.5, -0.125, 1.0):
        interval = rate_difference([share] * 6)
        assert -1 <= interval.low <= interval.value <= interval.high <= 1
        assert interval.high - interval.low > 0.1
    assert rate_over_rows([0.5] * 6) == wilson(3, 6)


def test_shares_and_differences_of_several_completions_are_bootstrapped() -> None:
    differences = [0.25, -0.5, 0.0, 0.75, math.nan] * 6
    assert rate_difference(differences, seed=3) == bootstrap_mean(differences, seed=3)
    shares = [0.25, 0.75, math.nan] * 10
    assert rate_over_rows(shares, seed=3) == bootstrap_mean(shares, seed=3)
    assert rate_over_rows(shares).n == 20
    assert math.isnan(rate_difference([math.nan]).value)


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
