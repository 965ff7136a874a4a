import math
from typing import Any

import pytest

from grpo_core.algorithms import controllers
from grpo_sdk.errors import UserError
from grpo_sdk.plugins import variants as registry

CONTROLLERS = [controllers.proportional, controllers.ppo_rule, controllers.step_rule, controllers.adaptive_entropy]


def test_on_the_edges_of_its_band_a_rule_changes_nothing() -> None:
    for rule, kl in ((controllers.ppo_rule, 0.15), (controllers.step_rule, 0.2), (controllers.step_rule, 0.05)):
        assert rule(0.02, [kl], target=0.1) == 0.02


def test_step_rule_averages_the_last_hundred_and_without_warmup_the_coefficient_is_whole() -> None:
    assert controllers.kl_warmup(0.04, 0, warmup_steps=0) == 0.04
    assert controllers.applied(controllers.constant, 0.04, [2.0]) == 0.04, "it has no gate"
    # The mean of one KL of 0.45 and 99 of 0.1 is 0.1035; what came before the last 100 does not count.
    assert controllers.step_rule(0.02, [*[50.0] * 7, 0.45, *[0.1] * (controllers.HISTORY - 1)], target=0.1) == 0.02
    assert controllers.step_rule(0.02, [50.0, *[0.1] * (controllers.HISTORY - 1)], target=0.1) == pytest.approx(0.03)


def test_decay_halves_and_coefficients_stay_within_their_bounds() -> None:
    assert controllers.decay(0.08, [], half_life=10) == pytest.approx(0.08 * 0.5**0.1)
    assert controllers.decay(0.02, [9.0], half_life=0.1, minimum=0.01) == 0.01
    assert (controllers.step_rule(9.0, [1.0]), controllers.step_rule(0.0, [0.0])) == (1.0, 0.001)
    assert controllers.adaptive_entropy(0.019, [0.5], target=1.0, delta=0.005, maximum=0.02) == 0.02
    assert controllers.adaptive_entropy(0.001, [2.0], target=1.0, delta=0.005) == 0.0


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
    ("step_rule", {"minimum": 0.5, "maximum": 0.1}, r"minimum=0\.5 and maximum=0\.1"),
])  # fmt: skip
def test_options_that_make_no_sense_are_refused(controller: str, options: dict[str, float], said: str) -> None:
    with pytest.raises(UserError, match=said):
        registry.bind("kl_controller", controller, options, "trainer.kl_controller_args")
