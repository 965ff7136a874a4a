import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from grpo_core.config import TrainerConfig
from grpo_core.training.algorithm import Algorithm
from grpo_core.training.update import Coefficient
from grpo_sdk.errors import UserError
from grpo_sdk.plugins import variants as registry

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


@pytest.mark.parametrize(("settings", "message"), [
    ({"baseline": "ema", "advantage_args": {"alfa": 0.5}}, r"advantage_args\.alfa.*alpha"),
    ({"loss_args": {"dual_clip": 0.5}}, r"loss_args\.dual_clip=0\.5: must be above 1"),
    ({"loss_type": "cispo", "epsilon_high": 0.5, "loss_args": {"epsilon_low": 0.2}}, r"loss_args\.epsilon_low=0\.2, "),
    ({"loss_type": "sapo", "loss_args": {"temperature_neg": 0}}, r"loss_args\.temperature_neg=0: .*above 0"),
    ({"baseline": "adaptive_shrink", "advantage_args": {"kappa": -1}}, r"advantage_args\.kappa=-1 counts"),
    ({"baseline": "bnpo", "advantage_args": {"minimum": 1}}, r"advantage_args\.minimum=1 must be below maximum=1"),
    ({"baseline": "ema", "advantage_args": {"alpha": 0}}, r"advantage_args\.alpha=0 is the weight"),
    ({"baseline": "gpg", "advantage_args": {"f_norm": 0}}, r"advantage_args\.f_norm=0 divides the advantages"),
    ({"baseline": "pass_at_k", "advantage_args": {"k": 0}}, r"advantage_args\.k=0 completions make a set"),
    ({"baseline": "role", "advantage_args": {"alpha": 1}}, r"advantage_args\.alpha=1 is the share that stays"),
])  # fmt: skip
def test_values_that_a_variant_cannot_use_are_refused_at_once(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=rf"^trainer\.{message}"):
        Algorithm.of(TrainerConfig(**settings))
