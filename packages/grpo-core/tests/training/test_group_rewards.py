"""Group rewards in a run: part of every reward, in the logs, refused where nothing is compared."""

from __future__ import annotations

import math
from pathlib import Path

import group_tasks
import pytest

from grpo_core import UserError, train
from grpo_core.cli.rollout_selection import Selection, part_times
from grpo_core.tracking.rollouts import read_rollouts

SPEC = f"{Path(group_tasks.__file__)}:varied"


def test_a_run_is_trained_on_them(tmp_path: Path) -> None:
    result = train(
        SPEC, model="tiny", max_steps=1, prompts_per_step=2, num_generations=4, max_completion_length=8, seed=1,
        output_dir=str(tmp_path), progress=False,
    )  # fmt: skip
    rollouts = list(read_rollouts(result.run_dir))

    assert len(rollouts) == 8
    for rollout in rollouts:
        parts = rollout.score.parts
        by_itself = 0.5 * parts["has_a"]
        relative = 0.2 * parts["diversity"] + 0.3 * parts["pairwise_ranking"]
        assert math.isclose(rollout.reward, by_itself + relative)
    assert any(rollout.score.parts["diversity"] > 0 for rollout in rollouts)
    times = {(part.task, part.part): part.n for part in part_times(result.run_dir, Selection(step="all"))}
    assert times[SPEC, "diversity"] == times[SPEC, "pairwise_ranking"] == 8, "grpo rollouts --slow lists them"
    evaluated = result.summary["tasks"]["group_tasks.varied"]["initial"]
    assert evaluated["mean_reward"] <= 0.5, "held-out completions are scored by themselves"


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (
            {"num_generations": 1, "baseline": "ema"},
            r"diversity\(\) compares the completions of a prompt, and trainer",
        ),
        ({"num_generations": 4, "baseline": "remax"}, "would be missing in the baseline remax"),
    ],
)
def test_they_are_refused_where_nothing_is_compared(tmp_path: Path, settings: dict[str, int | str], why: str) -> None:
    with pytest.raises(UserError, match=why):
        train(SPEC, model="tiny", max_steps=1, output_dir=str(tmp_path), progress=False, **settings)
