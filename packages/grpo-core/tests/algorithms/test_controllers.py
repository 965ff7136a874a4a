import math
from collections.abc import Callable
from typing import Any

import pytest

from grpo_core.algorithms import controllers
from grpo_sdk.errors import UserError
from grpo_sdk.plugins import variants as registry

CONTROLLERS = [controllers.proportional, controllers.ppo_rule, controllers.step_rule, controllers.adaptive_entropy]


@pytest.mark.parametrize(("rule", "kl", "expected"), [
    (controllers.ppo_rule, 0.15, 0.02),  # on the edges nothing changes: 1.5 times the target, and twice
    (controllers.step_rule, 0.2, 0.02),
    (controllers.step_rule, 0.05, 0.02),
    (controllers.step_rule, 9.0, 0.03),
])  # fmt: skip
def test_rules_act_outside_a_band_around_the_target(rule: Callable[..., float], kl: float, expected: float) -> None:
    assert rule(0.02, [kl], target=0.1) == pytest.approx(expected)


def test_step_rule_averages_the_last_hundred_and_without_warmup_the_coefficient_is_whole() -> None:
    assert controllers.kl_warmup(0.04, 0, warmup_steps=0) == 0.04
    # The mean of one KL of 0.45 and 99 of 0.1 is 0.1035; what came before the last 100 does not count.
    assert controllers.step_rule(0.02, [*[50.0] * 7, 0.45, *[0.1] * (controllers.HISTORY - 1)], target=0.1) == 0.02
    assert controllers.step_rule(0.02, [50.0, *[0.1] * (controllers.HISTORY - 1)], target=0.1) == pytest.approx(0.03)


def test_decay_halves_and_coefficients_stay_within_their_bounds() -> None:
    assert controllers.decay(0.08, [], half_life=10) == pytest.approx(0.08 * 0.5**0.1)
    assert controllers.decay(0.02, [9.0], half_life=0.1, minimum=0.01) == 0.01
    assert (controllers.step_rule(9.0, [1.0]), controllers.step_rule(0.0, [0.0])) == (1.0, 0.001)
    assert controllers.adaptive_entropy(0.019, [0.5], target=1.0, delta=0.005, maximum=0.02) == 0.02
    assert controllers.adaptive_entropy(0.001, [2.0], target=1.0, delta=0.005) == 0.0


def test_the_entropy_bonus_applies_only_below_the_target() -> None:
    histories = ([], [2.0, 0.9], [0.9, 1.0])
    bonus = [
        controllers.applied(controllers.adaptive_entropy, 0.01, history, target=1.0, delta=0.005)
        for history in histories
    ]
    assert bonus == [0.01, 0.01, 0.0]
    assert controllers.applied(controllers.constant, 0.01, [2.0]) == 0.01, "other controllers have no gate"


@pytest.mark.parametrize("controller", CONTROLLERS)
@pytest.mark.parametrize("measured", [-1e-9, math.nan, math.inf])
def test_no_measurement_and_one_that_can_be_negative_drive_nothing(controller: Any, measured: float) -> None:
    assert controller(0.02, []) == controllers.constant(0.02, [1e9]) == 0.02
    with pytest.raises(UserError, match="token mean of k2, k3 or full"):
        controller(0.02, [0.1, measured])


@pytest.mark.parametrize(("controller", "options", "said"), [
    ("decay", {"half_life": 0.0}, "half_life=0 must"),
    ("decay", {"minimum": -0.1}, r"minimum=-0\.1 must"),
    ("proportional", {"horizon": 10, "n_steps": 50, "clip": 0.2}, "Raise"),  # β could be exactly 0
    ("ppo_rule", {"target": 0.0}, "target=0 must be above 0"),
    ("step_rule", {"minimum": 0.5, "maximum": 0.1}, r"minimum=0\.5 and maximum=0\.1"),
])  # fmt: skip
def test_options_that_make_no_sense_are_refused(controller: str, options: dict[str, float], said: str) -> None:
    with pytest.raises(UserError, match=said):
        registry.bind("kl_controller", controller, options, "trainer.kl_controller_args")
