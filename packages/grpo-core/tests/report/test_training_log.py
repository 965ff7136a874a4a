"""A training log is reduced to points, whatever its length."""

import json
import math
from pathlib import Path

import pytest

from grpo_core.report.data import MAX_STEPS, TrainingLog


def log(folder: Path, lines: list[str]) -> tuple[TrainingLog, list[str]]:
    (folder / "logs").mkdir()
    (folder / "logs" / "train_log.jsonl").write_text("".join(line + "\n" for line in lines))
    missing: list[str] = []
    return TrainingLog(folder, missing), missing


@pytest.mark.parametrize(("steps", "points", "width"), [(1000, 1000, 1), (1001, 501, 2), (4500, 563, 8)])
def test_points_are_means_over_blocks_of_equal_length(tmp_path: Path, steps: int, points: int, width: int) -> None:
    rewards = [math.sin(step) for step in range(1, steps + 1)]
    lines = [json.dumps({"step": step, "reward": reward}) for step, reward in enumerate(rewards, 1)]
    read, missing = log(tmp_path, lines)
    assert not missing
    assert (len(read.steps), read.steps[0], read.steps[-1]) == (points, width, steps)
    means = [sum(rewards[at : at + width]) / len(rewards[at : at + width]) for at in range(0, steps, width)]
    assert read.metrics() == {"reward": pytest.approx(means, abs=1e-5)}
    assert points <= MAX_STEPS


LINES = ['{"step": 1, "kl": null}', '{"step": 2, "kl": 4, "late": true}', '{"step": 3, "kl": "NaN", "other": 1}']


@pytest.mark.parametrize(
    ("times", "kl", "other"),
    [(1, [None, 4.0, None], [None, None, 1.0]), (700, [4.0] * 525, [1.0] * 525)],  # then blocks of four lines
)
def test_means_are_of_the_logged(tmp_path: Path, times: int, kl: list[float | None], other: list[float | None]) -> None:
    read, _ = log(tmp_path, LINES * times)
    assert read.metrics() == {"kl": kl, "other": other}


def test_seconds_are_summed_over_all_steps_and_the_rest_is_other(tmp_path: Path) -> None:
    line = json.dumps({"step": 1, "step_s": 1.0, "generate_s": 0.5, "update_s": 0.25})
    read, _ = log(tmp_path, [line] * 2000)
    assert read.seconds == {"generate_s": 1000.0, "update_s": 500.0, "other_s": 500.0}
