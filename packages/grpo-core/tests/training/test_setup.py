"""What a run says of its settings at its start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from grpo_core import load_task
from grpo_core.config import RunConfig
from grpo_core.evaluation.rows import limited_rows, trained_tasks
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


def test_the_part_of_a_file_that_is_used_is_said(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text(
        '{"question": "q", "answer": "a"}\n' * 2 + '{"question": "r", "answer": "b"}\n'
    )
    task = f"core.qa?path={tmp_path}/{{split}}.jsonl"
    limited = trained_tasks(RunConfig(task=task, trainer={"train_size": 2}))  # type: ignore[arg-type] # validated
    (choice,) = limited_rows({"core.qa": limited[0]})
    assert choice.what == "rows" and "the first 2 of split train" in choice.value and "(99 bytes, hash" in choice.value
    assert "within the rows in use" in choice.why
    assert limited_rows({"core.qa": load_task(task), "math.echo": load_task("math.echo?size=3")}) == []
