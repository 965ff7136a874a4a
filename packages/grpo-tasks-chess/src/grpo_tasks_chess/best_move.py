"""`chess.best_move`: name one move, graded by its rank among the best ones."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from grpo_sdk import Task, reward
from grpo_tasks_chess.policy.grading import best_move_grade
from grpo_tasks_chess.policy.labels import TASK_TIMEOUT_S, source_of, truth_of, with_labels
from grpo_tasks_chess.policy.rows import PolicyRow
from grpo_tasks_chess.policy.task import PositionsConfig, conditions
from grpo_tasks_chess.policy.task import load as load_positions
from grpo_tasks_chess.questions import QuestionConfig, read_move, write_question
from grpo_tasks_chess.rules import legal_moves, position


class BestMoveConfig(QuestionConfig, PositionsConfig):
    """Options of `chess.best_move`."""


def load(config: BestMoveConfig) -> Iterator[PolicyRow]:
    """Positions: generated, with labels from the package, or of a file of `chess.policy`."""
    for row in load_positions(config):
        yield row.model_copy(update={"gold": f" {row.best}"}) if row.best else row


def demos(config: BestMoveConfig) -> Iterator[tuple[str, str]]:
    """Yield the prompt and best move of each row."""
    random = Random(f"demos/{config.seed}/{config.split}")
    for row in load_positions(config):
        labelled = with_labels(row, config.labeller, random)
        if labelled is not None:
            yield prompt(row, config), f" {labelled.best}"


def prompt(row: PolicyRow, config: BestMoveConfig) -> str:
    """Return the position and the question."""
    return write_question(row.fen, "Best move in UCI:", "B", config.template)


@reward(1.0)
def best_move(answer: str, row: PolicyRow, config: BestMoveConfig) -> float:
    """The move's worth by its rank: 1.0 the best, 0.7 to the third, 0.5 to the fifth, 0.2 if legal, 0 if illegal."""
    return best_move_grade(answer, truth_of(row, config.labeller), legal_moves(position(row.fen)))


@reward(0.0)
def best_move_accuracy(answer: str, row: PolicyRow, config: BestMoveConfig) -> float:
    """1 when no known move is better; 0 also where none is known."""
    return float(truth_of(row, config.labeller).rank(answer) == 1)


@reward(0.0)
def legality(answer: str, row: PolicyRow) -> float:
    """1 for a legal move."""
    return float(answer in legal_moves(position(row.fen)))


@reward(0.0)
def graded_by_labels(row: PolicyRow, config: BestMoveConfig) -> float:
    """1 when the row's labels grade it, which are better than the built-in search."""
    return float(source_of(row, config.labeller) == "labels")


TASK = Task(
    "best_move",
    load,
    prompt,
    read_move,
    (best_move, best_move_accuracy, legality, graded_by_labels),
    config=BestMoveConfig,
    row=PolicyRow,
    solved=lambda answer, row, text, parts: parts["best_move_accuracy"] == 1.0,
    demos=demos,
    default_model="chess-tiny",
    stop=("\n",),
    max_completion_length=8,
    timeout_s=TASK_TIMEOUT_S,
    on_timeout="fail",
    conditions=conditions,
)
"""Value: the move's worth by its rank; 0 for an answer that is no move."""
