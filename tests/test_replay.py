"""`grpo replay` scores rollouts of turns, games and opponents again: nothing changes.

What a replay computes has its tests in grpo-core; here the log of a run is the one that the trainer wrote.
"""

from pathlib import Path

from dataset_rows import with_rows

from grpo_core import train
from grpo_core.config import EvalConfig, RunConfig, ScoringConfig, TrainerConfig
from grpo_core.evaluation.replay import replay
from grpo_sdk.records.rollouts import read_rollouts

ALONE = ("games.nim?size=4", "games.tictactoe?size=4")
"""Played by the policy alone: each episode is scored for both seats."""

OPPOSED = (
    "games.connect_four?opponent=base&illegal=random&rows=4&columns=5&size=4",
    "games.kuhn_poker?opponent=nash&size=4",
    "code.prediction_game?size=4",
)
GENERATIONS = 4


def replayed(folder: Path, tasks: tuple[str, ...], *, sides: int) -> Path:
    """The folder of a run of one step, whose replay changes nothing."""
    config = RunConfig(
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
    run = train(config).run_dir
    result = replay(run, config)
    assert len(result.tasks) == len(tasks)
    for spec, task in result.tasks.items():
        assert task.is_same and not task.skipped, spec
        assert (task.completions, task.changed) == (GENERATIONS * sides, 0), spec
    assert (result.advantages.n, result.advantages.differ) == (GENERATIONS * sides * len(tasks), 0)
    return run


def test_games_that_the_policy_plays_alone(tmp_path: Path) -> None:
    run = replayed(tmp_path, ALONE, sides=2)
    assert {record.role for record in read_rollouts(run, task="games.nim")} == {"first", "second"}


def test_opponents_and_conversations(tmp_path: Path) -> None:
    run = replayed(tmp_path, (*OPPOSED, with_rows("code.mbpp_retry", tmp_path)), sides=1)
    retried = list(read_rollouts(run, task="code.mbpp_retry"))
    assert {record.turns for record in retried} == {2}  # text without a program in it is asked for again
    assert all(record.scored_text is not None and record.text.endswith(record.scored_text) for record in retried)
