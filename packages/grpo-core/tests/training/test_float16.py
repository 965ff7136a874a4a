"""A run in float16 with a scaled loss: the CPU chooses its precision as a GPU below compute capability 8.0 does."""

from __future__ import annotations

import functools
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from small_policies import saved_model

from grpo_core import train
from grpo_core.callbacks import Callback, RunInfo
from grpo_core.config import EvalConfig, RunConfig, ScoringConfig, TrainerConfig
from grpo_core.policy import load

TASKS = """
from collections.abc import Iterable
from grpo_core import Row, Task, reward

def load(config) -> Iterable[Row]:
    for index in range(24):
        yield Row(id=f"{config.split}{index}", gold="x")

@reward(1.0)
def low(answer):
    return sum(ord(character) < 64 for character in answer) / max(1, len(answer))

low_bytes = Task("low_bytes", load, lambda row: row.id, lambda text, row: text, (low,), max_completion_length=6)
"""
STEPS = 24


class Choices(Callback):
    def on_run_start(self, info: RunInfo) -> None:
        self.precision = next(choice for choice in info.choices if choice.what == "precision")


def trained(
    folder: Path, out: Path, precision: str = "auto"
) -> tuple[Choices, dict[str, Any], list[dict[str, Any]], Path]:
    made = RunConfig(
        task=f"{folder / 'tasks.py'}:low_bytes",
        model=str(folder / "model"),
        output_dir=str(out),
        device="cpu",
        precision=precision,
        trainer=TrainerConfig(
            max_steps=STEPS, prompts_per_step=4, num_generations=8, max_completion_length=6, learning_rate=3e-3,
            lr_scheduler_type="constant",
        ),
        scoring=ScoringConfig(workers=1),
        eval=EvalConfig(at_start=False, at_end=False),
    )  # fmt: skip
    result = train(made, [seen := Choices()])
    lines = (result.run_dir / "logs" / "train_log.jsonl").read_text().splitlines()
    return seen, result.summary, [json.loads(line) for line in lines], result.run_dir


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("float16")
    saved_model(path / "model")
    (path / "tasks.py").write_text(TASKS)
    return path


@pytest.fixture
def turing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU chooses its precision as a GPU of compute capability 7.5 does."""
    choose = load.choose_precision
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    monkeypatch.setattr(load, "choose_precision", lambda precision, _: choose(precision, torch.device("cuda")))


def mean(steps: list[dict[str, Any]]) -> float:
    return sum(step["reward"] for step in steps) / len(steps)


def test_it_learns_with_a_scaled_loss_as_float32_does(folder: Path, tmp_path: Path, turing: None) -> None:
    seen, summary, steps, run = trained(folder, tmp_path / "half")
    assert "float16 with a scaled loss, because compute capability 7.5" in seen.precision.why
    assert all(step["loss_scale"] == 2.0**16 for step in steps)
    assert (summary["updates"], summary["skipped_updates"]) == (STEPS, 0)
    wide = trained(folder, tmp_path / "wide", "float32")[2]
    gained, expected = mean(steps[-5:]) - mean(steps[:5]), mean(wide[-5:]) - mean(wide[:5])
    assert expected > 0.15, "else the test shows nothing"
    assert gained > 0.5 * expected
    before = load_file(folder / "model" / "model.safetensors")
    after = load_file(run / "training_state" / "step_final" / "model" / "model.safetensors")
    assert all(tensor.dtype == torch.float32 and tensor.isfinite().all() for tensor in after.values())
    assert any(not torch.equal(before[name], after[name]) for name in after)


def test_steps_that_overflow_are_skipped_and_counted_and_the_rest_is_learned(
    folder: Path, tmp_path: Path, turing: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.amp, "GradScaler", functools.partial(torch.amp.GradScaler, init_scale=2.0**28))
    _, summary, steps, _ = trained(folder, tmp_path)
    is_skipped = ["grad_norm" not in step for step in steps]  # it has none that is finite
    assert is_skipped[0] and not is_skipped[-1]
    assert 3 < sum(is_skipped) < STEPS / 2
    for index, skipped in enumerate(is_skipped[:-1]):
        assert steps[index + 1]["loss_scale"] == steps[index]["loss_scale"] / (2 if skipped else 1)
    assert summary["skipped_updates"] == steps[-1]["skipped_updates"] == sum(is_skipped)
    assert all(math.isfinite(value) for step in steps for value in step.values())
    assert mean(steps[-5:]) > mean(steps[:5])
