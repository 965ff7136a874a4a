"""`grpo replay` scores rollouts of every built-in task of several turns, game and opponent again: nothing changes.

What a replay computes has its tests in grpo-core; here the log of a run is the one that the trainer wrote.
"""

from __future__ import annotations

from pathlib import Path

import orjson

from grpo_core import train
from grpo_core.config import EvalConfig, RunConfig, ScoringConfig, TrainerConfig
from grpo_core.evaluation.replay import Replay, replay
from grpo_core.tracking.rollouts import read_rollouts

GAMES = (
    "games.tictactoe?size=4",
    "games.nim?size=4",
    "games.kuhn_poker?size=4",
    "games.connect_four?rows=4&columns=5&size=4",
)
"""Played by the policy alone: each episode is scored for both seats."""

OPPOSED = (
    "games.tictactoe?opponent=random&illegal=random&size=4",
    "games.nim?opponent=base&illegal=random&size=4",
    "games.kuhn_poker?opponent=nash&size=4",
    "code.prediction_game?size=4",
)
GENERATIONS = 4


def problems(folder: Path) -> Path:
    """Problems in MBPP's form; the split goes by their numbers."""
    path = folder / "mbpp.jsonl"
    lines = [
        {
            "task_id": number, "text": "Add one.", "code": "def inc(x):\n    return x + 1",
            "test_list": ["assert inc(1) == 2"], "test_setup_code": "", "challenge_test_list": [],
        }
        for number in (601, 602, 603, 511, 512, 11)
    ]  # fmt: skip
    path.write_bytes(b"\n".join(map(orjson.dumps, lines)))
    return path


def config(tasks: tuple[str, ...], folder: Path) -> RunConfig:
    return RunConfig(
        task=",".join(tasks),
        model="code-tiny",
        output_dir=str(folder),
        device="cpu",
        trainer=TrainerConfig(
            max_steps=1, prompts_per_step=len(tasks), num_generations=GENERATIONS, max_completion_length=8,
            max_prompt_length=384,
        ),
        scoring=ScoringConfig(workers=1),
        eval=EvalConfig(at_start=False, at_end=False),
    )  # fmt: skip


def assert_unchanged(result: Replay, tasks: int, sides: int) -> None:
    assert len(result.tasks) == tasks
    for spec, task in result.tasks.items():
        assert task.is_same, spec
        assert not task.skipped, spec
        assert (task.completions, task.changed) == (GENERATIONS * sides, 0), spec
    assert result.advantages.n == GENERATIONS * sides * tasks
    assert result.advantages.differ == 0


def test_games_that_the_policy_plays_alone(tmp_path: Path) -> None:
    configured = config(GAMES, tmp_path)
    run = train(configured).run_dir
    assert_unchanged(replay(run, configured), len(GAMES), sides=2)
    roles = {record.role for record in read_rollouts(run, task="games.nim")}
    assert roles == {"first", "second"}


def test_opponents_and_conversations(tmp_path: Path) -> None:
    tasks = (*OPPOSED, f"code.mbpp_retry?path={problems(tmp_path)}")
    configured = config(tasks, tmp_path)
    run = train(configured).run_dir
    retried = list(read_rollouts(run, task="code.mbpp_retry"))
    assert {record.turns for record in retried} == {2}  # text without a program in it is asked for again
    assert all(record.scored_text is not None and record.text.endswith(record.scored_text) for record in retried)
    assert_unchanged(replay(run, configured), len(tasks), sides=1)
