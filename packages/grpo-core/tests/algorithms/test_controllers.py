import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_core.algorithms.controllers import (
    HISTORY,
    adaptive_entropy,
    applied,
    constant,
    decay,
    kl_warmup,
    ppo_rule,
    proportional,
    step_rule,
)
from grpo_core.errors import UserError

CONTROLLERS = [proportional, ppo_rule, step_rule, adaptive_entropy]
kls = st.lists(st.floats(0, 1e3), min_size=1, max_size=5)


@pytest.mark.parametrize(
    ("kl", "expected"),
    [
        (0.1, 0.02),  # on target
        (0.11, 0.02 * (1 + 0.1 / 10)),  # 10 % above
        (0.5, 0.02 * (1 + 0.2 / 10)),  # clipped
        (0.0, 0.02 * (1 - 0.2 / 10)),  # clipped
    ],
)
def test_proportional(kl: float, expected: float) -> None:
    assert proportional(0.02, [9.0, kl], target=0.1, horizon=10, n_steps=1) == pytest.approx(expected)


def test_proportional_over_a_horizon_changes_by_about_its_clip() -> None:
    beta = 1.0
    for _ in range(20):
        beta = proportional(beta, [99.0])
    assert beta == pytest.approx(math.exp(0.2), rel=2e-3)  # (1 + 0.2/20)^20


def test_decay_halves_and_stays_above_its_minimum() -> None:
    coefficient = 0.08
    for _ in range(20):
        coefficient = decay(coefficient, [], half_life=10)
    assert coefficient == pytest.approx(0.02)
    assert decay(0.02, [9.0], half_life=0.1, minimum=0.01) == 0.01


@pytest.mark.parametrize("options", [{"half_life": 0.0}, {"half_life": -1.0}, {"minimum": -0.1}])
def test_decay_refuses_what_does_not_fall(options: dict[str, float]) -> None:
    with pytest.raises(UserError, match="must"):
        decay(0.1, [], **options)


@given(kls, st.floats(0.01, 0.9))
def test_proportional_stays_within_its_bound(history: list[float], clip: float) -> None:
    found = proportional(1.0, history, target=0.05, horizon=10, n_steps=10, clip=clip)
    rounding = 1e-12
    assert 0 < 1 - clip - rounding <= found <= 1 + clip + rounding


def test_proportional_refuses_what_could_take_beta_to_0() -> None:
    with pytest.raises(UserError, match=r"Raise horizon above 12\.8"):
        proportional(0.02, [0.1], horizon=10, n_steps=64, clip=0.2)


@pytest.mark.parametrize(
    ("kl", "expected"), [(0.151, 0.04), (0.15, 0.02), (0.1, 0.02), (0.067, 0.02), (0.066, 0.01), (0.0, 0.01)]
)
def test_ppo_rule_acts_outside_one_and_a_half_times_the_target(kl: float, expected: float) -> None:
    assert ppo_rule(0.02, [9.0, kl], target=0.1) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("kl", "expected"), [(0.21, 0.03), (0.2, 0.02), (0.1, 0.02), (0.05, 0.02), (0.049, 0.016), (0.0, 0.016)]
)
def test_step_rule_acts_outside_twice_the_target(kl: float, expected: float) -> None:
    assert step_rule(0.02, [kl], target=0.1) == pytest.approx(expected)


def test_step_rule_averages_the_last_hundred() -> None:
    # The mean of one KL of 0.45 and 99 of 0.1 is 0.1035; what came before the last 100 does not count.
    assert step_rule(0.02, [*[50.0] * 7, 0.45, *[0.1] * (HISTORY - 1)], target=0.1) == 0.02
    assert step_rule(0.02, [50.0, *[0.1] * (HISTORY - 1)], target=0.1) == pytest.approx(0.03)


@given(st.floats(0, 10), kls)
def test_step_rule_is_bounded(beta: float, history: list[float]) -> None:
    assert 0.001 <= step_rule(beta, history) <= 1.0


def test_adaptive_entropy_adds_below_the_target_and_takes_away_from_it_on() -> None:
    options = {"target": 1.0, "delta": 0.005, "maximum": 0.02}
    assert adaptive_entropy(0.01, [0.5], **options) == pytest.approx(0.015)
    assert adaptive_entropy(0.01, [1.0], **options) == pytest.approx(0.005)
    assert adaptive_entropy(0.01, [9.0, 0.5], **options) == pytest.approx(0.015), "the newest counts"
    assert adaptive_entropy(0.019, [0.5], **options) == 0.02
    assert adaptive_entropy(0.001, [2.0], **options) == 0.0


def test_the_entropy_bonus_applies_only_below_the_target() -> None:
    options = {"target": 1.0, "delta": 0.005}
    assert applied(adaptive_entropy, 0.01, [], **options) == 0.01, "before the first measurement"
    assert applied(adaptive_entropy, 0.01, [2.0, 0.9], **options) == 0.01
    assert applied(adaptive_entropy, 0.01, [0.9, 1.0], **options) == 0.0
    assert applied(constant, 0.01, [2.0]) == 0.01, "other controllers have no gate"


@pytest.mark.parametrize("controller", [constant, *CONTROLLERS])
def test_without_a_measurement_the_coefficient_stays(controller: object) -> None:
    assert callable(controller) and controller(0.02, []) == 0.02


def test_constant_is_constant() -> None:
    assert constant(0.02, [1e9]) == 0.02


@pytest.mark.parametrize("controller", CONTROLLERS)
@pytest.mark.parametrize("measured", [-1e-9, math.nan, math.inf])
def test_a_quantity_that_can_be_negative_drives_nothing(controller: object, measured: float) -> None:
    assert callable(controller)
    with pytest.raises(UserError, match="token mean of k2, k3 or full"):
        controller(0.02, [0.1, measured])


@pytest.mark.parametrize("options", [{"minimum": 0.5, "maximum": 0.1}, {"minimum": -1.0}, {"target": 0.0}])
def test_options_that_make_no_sense_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(UserError, match=r"minimum=.* and maximum=|target=0 must be above 0"):
        step_rule(0.02, [0.1], **options)


@pytest.mark.parametrize(("step", "expected"), [(0, 0.0), (1, 0.004), (5, 0.02), (10, 0.04), (99, 0.04)])
def test_kl_warmup_is_linear(step: int, expected: float) -> None:
    assert kl_warmup(0.04, step, warmup_steps=10) == pytest.approx(expected)
    assert kl_warmup(0.04, step, warmup_steps=0) == 0.04
