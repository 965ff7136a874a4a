from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from grpo_core.config import TrainerConfig
from grpo_core.errors import UserError
from grpo_core.plugins import variants as registry
from grpo_core.training.algorithm import Algorithm
from grpo_core.training.coefficients import Coefficient

SOURCE = """
def unaggregated(ratio, advantages, *, epsilon: float = 0.5): return -ratio * advantages * epsilon
def multiplied(coefficient, history, *, by: float = 2.0): return coefficient * by
"""


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A loss and a controller of a third party, both called `mine`."""
    (tmp_path / "third_party.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    registry.register("loss", "mine", "third_party:unaggregated")
    registry.register("kl_controller", "mine", "third_party:multiplied")
    yield
    registry.unregister("loss", "mine")
    registry.unregister("kl_controller", "mine")
    sys.modules.pop("third_party", None)


@pytest.mark.usefixtures("registered")
def test_what_a_configuration_names_is_looked_up_once() -> None:
    config = TrainerConfig(
        loss_type="mine", aggregation="token_mean", epsilon=0.3, beta=0.1, kl_controller="mine",
        kl_controller_args={"by": 3.0},
    )  # fmt: skip
    algorithm = Algorithm.of(config)
    registry.unregister("loss", "mine")
    registry.unregister("kl_controller", "mine")
    assert algorithm.loss.arguments == {"epsilon": 0.3}  # the loss has no epsilon_high, so it is not given one
    assert algorithm.loss(torch.tensor([1.0]), torch.tensor([2.0])).tolist() == [pytest.approx(-0.6)]
    coefficient = Coefficient(config.beta, algorithm.kl_controller)
    coefficient.observe(1.0)
    assert coefficient.value == pytest.approx(0.3)


@pytest.mark.usefixtures("registered")
def test_a_loss_that_does_not_say_how_tokens_are_aggregated_is_refused_before_a_model_is_loaded() -> None:
    with pytest.raises(UserError, match=r"trainer\.loss_type=mine: .*set trainer\.aggregation"):
        Algorithm.of(TrainerConfig(loss_type="mine"))
    assert Algorithm.of(TrainerConfig(loss_type="mine", aggregation="sequence_sum")).aggregation == "sequence_sum"


def test_arguments_are_checked_before_a_model_is_loaded() -> None:
    with pytest.raises(UserError, match=r"trainer\.advantage_args\.alfa.*alpha"):
        Algorithm.of(TrainerConfig(baseline="ema", advantage_args={"alfa": 0.5}))
