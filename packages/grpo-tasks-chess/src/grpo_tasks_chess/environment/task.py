"""The task `chess.environment`: options, loader, prompt, rewards, metrics."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Literal

from grpo_sdk import Score, Task, reward
from grpo_sdk.data import DatasetConfig
from grpo_sdk.rewards import graduated
from grpo_tasks_chess.environment import grading
from grpo_tasks_chess.environment.rows import EnvironmentRow, make_row
from grpo_tasks_chess.formats import EnvironmentAnswer, read_environment, write_environment_prompt
from grpo_tasks_chess.loading import packaged, rows_of
from grpo_tasks_chess.records import distinct
from grpo_tasks_chess.shaping import ShapedConfig

THRESHOLDS = (0.6, 0.8, 0.9, 1.0)
"""Qualities from which `graduated` gives 0.4, 0.6, 0.8 and 1.0. The form alone contributes 0.4, and the unchanged
position is nine tenths equal to the right one: with RookWorld's 0.4, 0.6, 0.8 and 0.95 it would get 1.0. `binary` pays
from the last: above one half it would pay the form with any position."""


GENERATED = 500
"""Default number of generated rows, which take 3 seconds, those of the small splits 6."""


class EnvironmentConfig(ShapedConfig, DatasetConfig):
    """Options of `chess.environment`.

    Attributes:
        size: Number of rows; by default 500 generated ones, or all of a file.
        rows: Source of the rows without a file: `generated` from the seed, or `packaged`, a fixed labelled set of a few
            hundred with fixed shares of every outcome.
    """

    rows: Literal["generated", "packaged"] = "generated"


def load(config: EnvironmentConfig) -> Iterator[EnvironmentRow]:
    """Moves and what they do: from generated games, the package, or a file."""
    if config.path is None and config.rows == "packaged":
        config = config.model_copy(update={"path": packaged("environment.jsonl")})
    if config.path is not None:
        return rows_of(config, "environment", make_row)
    from grpo_tasks_chess.data.environment import generated_rows  # which scoring needs not

    return islice(distinct(generated_rows(config.seed, config.split)), config.size or GENERATED)


def prompt(row: EnvironmentRow) -> str:
    """`A: FEN+move+history+`."""
    return write_environment_prompt(row.transition)


def validate(text: str) -> EnvironmentAnswer:
    """`FEN+reward+terminated+truncated`."""
    return read_environment(text)


@reward(4.0)
def format(answer: EnvironmentAnswer) -> float:
    """1: a position, a reward and two flags were given."""
    return 1.0


@reward(3.0)
def fen_match(answer: EnvironmentAnswer, row: EnvironmentRow) -> float:
    """1 for the right position; else 1 − Levenshtein distance / length of the longer FEN."""
    return 1.0 - grading.fen_distance(answer.fen, row.next_fen)


@reward(2.0)
def game_state(answer: EnvironmentAnswer, row: EnvironmentRow) -> float:
    """The share of the two flags that are right."""
    return grading.game_state_grade(answer, row.outcome)


@reward(1.0)
def reward_value(answer: EnvironmentAnswer, row: EnvironmentRow) -> float:
    """How near the reward is, in steps; see `reward_grade`."""
    return grading.reward_grade(answer.reward, row.reward)


@reward(0.0)
def next_state_exact(answer: EnvironmentAnswer, row: EnvironmentRow) -> float:
    """1 when the position is right."""
    return float(answer.fen == row.next_fen)


@reward(0.0)
def next_state_distance(text: str, row: EnvironmentRow) -> float:
    """Levenshtein distance to the right position / length of the longer FEN; 1 for an invalid completion."""
    answer = grading.prediction(text)
    return 1.0 if answer is None else grading.fen_distance(answer.fen, row.next_fen)


@reward(0.0)
def flags_accuracy(answer: EnvironmentAnswer, row: EnvironmentRow) -> float:
    """1 when both flags are right."""
    return float(grading.game_state_grade(answer, row.outcome) == 1.0)


@reward(0.0)
def reward_error(text: str, row: EnvironmentRow) -> float:
    """The reward's absolute error, at most 2; 2 for an invalid completion."""
    answer = grading.prediction(text)
    error = math.inf if answer is None else abs(answer.reward - row.reward)
    return min(error, grading.LARGEST_REWARD_ERROR)


FACTS = (next_state_exact, next_state_distance, flags_accuracy, reward_error)

METRICS = {"format_validity": "format", **{fact.__name__: fact.__name__ for fact in FACTS}}
"""Metric -> the part whose mean it is."""


def metrics(scores: Sequence[Score]) -> dict[str, float]:
    """Means over the scored completions of validity, the next state, flags and the reward."""
    parts = [score.parts for score in scores if not score.abstained]
    return {
        f"chess_environment/{metric}": sum(each[part] for each in parts) / len(parts)
        for metric, part in METRICS.items()
        if parts
    }


def specialize(config: EnvironmentConfig) -> Task:
    """The task with the configured shaping."""
    compose = graduated(shaping=config.shaping, thresholds=THRESHOLDS, binary_from=THRESHOLDS[-1])
    # In version 0 `binary` paid any quality above one half.
    version = "1" if config.shaping == "binary" else TASK.version
    return replace(TASK, compose=compose, version=version, specialize=None)


TASK = Task(
    "environment",
    load,
    prompt,
    validate,
    (format, fen_match, game_state, reward_value, *FACTS),
    config=EnvironmentConfig,
    row=EnvironmentRow,
    default_model="chess-tiny",
    stop=("\n",),
    max_completion_length=112,  # a token per character of the longest completion; most tokenizers need half of it
    metrics=metrics,
    on_timeout="fail",
    specialize=specialize,
)
"""Quality: (4 format + 3 fen_match + 2 game_state + reward_value) / 10, shaped as the options say; −0.3 invalid."""
