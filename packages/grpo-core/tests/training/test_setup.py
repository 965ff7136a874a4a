"""What a run says of its settings at its start."""

from __future__ import annotations

from typing import Any

import pytest

from grpo_core import load_task
from grpo_core.config import RunConfig
from grpo_core.training.setup import _without_effect


@pytest.mark.parametrize(
    ("settings", "unread"),
    [
        ({"trainer": {"loss_type": "cispo"}}, {}),
        ({"trainer": {"epsilon": 0.05}}, {}),
        (
            {"trainer": {"loss_type": "cispo", "epsilon": 0.05}},
            {"trainer.epsilon": "the loss cispo takes epsilon_high, epsilon_low, max_log_ratio"},
        ),
        (
            {"lora": {"r": 4, "alpha": 8}},
            {"lora.r": "lora.enabled is false", "lora.alpha": "lora.enabled is false"},
        ),
        ({"lora": {"r": 16}}, {}),
        ({"lora": {"enabled": True, "r": 4}}, {}),
        ({"curriculum": {"weights": (1, 2, 0)}}, {"curriculum.weights": "curriculum.enabled is false"}),
        ({"curriculum": {"enabled": True, "weights": (1, 2, 0)}}, {}),
        ({"curriculum": {"ladder_threshold": 0.5}}, {"curriculum.ladder_threshold": "no task is a ladder"}),
    ],
)
def test_settings_that_nothing_reads_are_said(settings: dict[str, Any], unread: dict[str, str]) -> None:
    task = load_task("math.arithmetic")
    found = _without_effect(RunConfig(**settings), {"math.arithmetic": task})
    assert {choice.what: choice.why for choice in found} == unread
    assert {choice.value for choice in found} <= {"without effect"}


def test_a_ladder_reads_its_own() -> None:
    config = RunConfig(curriculum={"ladder_threshold": 0.5})  # type: ignore[arg-type] # validated
    assert _without_effect(config, {"math.ladder": load_task("math.ladder")}) == []
