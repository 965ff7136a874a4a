"""A part of weight 0 is logged and never trained on, by any baseline, even by one that sees every reward function."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
import torch
from safetensors.torch import load_file

from grpo_core import load_task, train
from grpo_core.config import EvalConfig, RunConfig, TrainerConfig

TASKS = Path(__file__).parents[1] / "support" / "watched_tasks.py"


def weights_and_log(task: str, folder: Path, baseline: str) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    result = train(
        RunConfig(
            task=f"{TASKS}:{task}",
            model="tiny",
            output_dir=str(folder),
            trainer=TrainerConfig(
                max_steps=2, prompts_per_step=4, num_generations=4, learning_rate=1e-3, baseline=baseline
            ),
            eval=EvalConfig(at_start=False, at_end=False),
        ),
        progress=False,
    )
    model = result.run_dir / "training_state" / "step_final" / "model" / "model.safetensors"
    log = (result.run_dir / "logs" / "train_log.jsonl").read_bytes().splitlines()[-1]
    return load_file(model), orjson.loads(log)


@pytest.mark.parametrize("baseline", ["group_mean", "gdpo"])
def test_a_watched_part_changes_no_weight_of_the_model(tmp_path: Path, baseline: str) -> None:
    # The tasks have one name, by which random numbers are keyed.
    plain, _ = weights_and_log("plain", tmp_path / "plain", baseline)
    watched, log = weights_and_log("watched", tmp_path / "watched", baseline)
    assert plain.keys() == watched.keys()
    assert all(torch.equal(plain[name], watched[name]) for name in plain)
    (part,) = (value for name, value in log.items() if name.endswith("/part/length"))
    assert part > 100  # it is logged, far above its maximum
    assert log["grad_norm"] > 0


def test_a_watched_part_is_in_no_value_and_not_in_solved() -> None:
    task = load_task(f"{TASKS}:watched")
    row = task.rows()[0]
    for text, value in (("01", 1.0), ("11", 0.0)):  # 48 + 49 = 13 · 7 + 6, and 49 + 49 = 14 · 7
        score = task.score(text, row)
        assert (score.value, score.solved) == (value, value == 1.0)
        assert score.parts["length"] == 200.0
