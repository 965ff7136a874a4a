"""Sampling in bfloat16 beside training in float32: the mismatch is measured, and corrected unless the user says no."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from grpo_core import train
from grpo_core.callbacks import Callback, RunInfo
from grpo_core.config import EvalConfig, RunConfig, TrainerConfig
from grpo_core.config.models import EngineConfig
from grpo_core.engines import native

TASK = "math.arithmetic"


class Choices(Callback):
    def on_run_start(self, info: RunInfo) -> None:
        self.seen = {choice.what: choice for choice in info.choices}


@pytest.mark.parametrize(
    ("precision", "trainer", "corrected"),
    [("float32", {}, True), ("bfloat16", {}, False), ("float32", {"rollout_correction": "none"}, False)],
)
def test_bfloat16_samples_are_corrected_where_training_is_in_float32(
    precision: Any, trainer: dict[str, Any], corrected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "multiplies_bfloat16", lambda: True)
    choices = Choices()
    sizes = {
        "max_steps": 2,
        "prompts_per_step": 2,
        "num_generations": 4,
        "max_completion_length": 16,
        "max_prompt_length": 32,
    }
    config = RunConfig(
        task=TASK, model="tiny", output_dir=str(tmp_path), device="cpu", precision=precision,
        engine=EngineConfig(args={"dtype": "bfloat16"}), trainer=TrainerConfig(**sizes, **trainer),
        eval=EvalConfig(at_start=False, at_end=False),
    )  # fmt: skip
    run = train(config, callbacks=[choices]).run_dir
    steps = [json.loads(line) for line in (run / "logs" / "train_log.jsonl").read_text().splitlines()]
    assert ("engine.args.dtype=bfloat16" in str(choices.seen.get("trainer.rollout_correction"))) is corrected
    assert all(step["sampler_mismatch"] > 0 for step in steps)
    assert all(("rollout_weight" in step) is corrected for step in steps)
