import math

import pytest

from grpo_core.evaluation.intervals import bootstrap_mean, wilson


def test_wilson_of_known_counts() -> None:
    # Reference-systems 3.4: 2/5 is .12 to .77, 5/5 is .57 to 1.0.
    two, five = wilson(2, 5), wilson(5, 5)
    assert (round(two.low, 2), round(two.high, 2)) == (0.12, 0.77)
    assert (round(five.low, 2), five.high) == (0.57, 1.0)


def test_wilson_of_nothing_knows_nothing() -> None:
    interval = wilson(0, 0)
    assert math.isnan(interval.value)
    assert (interval.low, interval.high) == (0.0, 1.0)


def test_wilson_refuses_more_successes_than_trials() -> None:
    with pytest.raises(ValueError, match="6 successes of 5"):
        wilson(6, 5)


def test_bootstrap_of_a_coin_is_near_the_normal_interval() -> None:
    values = [0.0, 1.0] * 200
    interval = bootstrap_mean(values)
    half = 1.96 * 0.5 / math.sqrt(400)  # standard error of 400 fair coins
    assert interval.value == 0.5
    assert interval.low == pytest.approx(0.5 - half, abs=0.01)
    assert interval.high == pytest.approx(0.5 + half, abs=0.01)


def test_bootstrap_is_the_same_for_the_same_seed() -> None:
    values = [0.1, 0.5, 0.9, 0.3]
    assert bootstrap_mean(values, seed=3) == bootstrap_mean(values, seed=3)


def test_bootstrap_of_equal_values_is_a_point() -> None:
    interval = bootstrap_mean([0.2, 0.2, 0.2])
    assert interval.low == interval.value == interval.high
