"""`chess.legal_moves`: list every legal move of a position."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import chess
from pydantic import Field

from grpo_sdk import Task, reward
from grpo_sdk.data import DatasetConfig, stable_id
from grpo_tasks_chess.data.positions import positions
from grpo_tasks_chess.questions import QuestionConfig, read_moves, read_positions, write_moves, write_question
from grpo_tasks_chess.records import PositionRow, distinct, position_key_of
from grpo_tasks_chess.rules import legal_moves, position

GENERATED = 1000
"""Default number of generated rows, which take a second."""

MOST_MOVES = 218
"""Largest number of legal moves of any position that a game reaches."""


class LegalMovesConfig(QuestionConfig, DatasetConfig):
    """Options of `chess.legal_moves`.

    Attributes:
        size: Number of rows; by default 1000 generated ones, or all of a file.
        max_moves: Take positions with at most so many legal moves, which bounds the answers.
        in_check: Share of generated positions with a check that must be answered, see `data.positions.positions`.
    """

    max_moves: int = Field(default=40, ge=1, le=MOST_MOVES)
    in_check: float = Field(default=0.0, ge=0, le=1)


class LegalMovesRow(PositionRow):
    """A position in which the game is not over; its difficulty is the number of legal moves."""


def row_of(board: chess.Board) -> LegalMovesRow:
    """Make the row of a position.

    Raises:
        ValueError: it has no legal move.
    """
    moves, fen = list(board.legal_moves), board.fen()
    if not moves:
        raise ValueError(f"fen: {fen} has no legal move")
    return LegalMovesRow(
        id=stable_id(position_key_of(board)), gold=write_moves(moves), difficulty=float(len(moves)), fen=fen
    )


def load(config: LegalMovesConfig) -> Iterator[LegalMovesRow]:
    """Positions of generated games, or of a file."""
    if config.path is not None:
        return (row for row in read_positions(config, row_of) if (row.difficulty or 0) <= config.max_moves)
    boards = positions(config.seed, config.split, label="chess.legal_moves", in_check=config.in_check)
    generated = (row_of(board) for board in boards if board.legal_moves.count() <= config.max_moves)
    return islice(distinct(generated), config.size or GENERATED)


def prompt(row: LegalMovesRow, config: LegalMovesConfig) -> str:
    """Return the position and the question."""
    return write_question(row.fen, "All legal moves in UCI:", "M", config.template)


def validate(text: str) -> tuple[str, ...]:
    """Read the moves.

    Raises:
        Invalid: there are none, more than any position has, or other words.
    """
    return read_moves(text, MOST_MOVES)


@reward(1.0)
def f1(answer: tuple[str, ...], row: LegalMovesRow) -> float:
    """2 · right / (listed + legal): a move that is listed twice is right once."""
    legal = legal_moves(position(row.fen))
    return 2 * len(legal.keys() & set(answer)) / (len(answer) + len(legal))


@reward(0.0)
def precision(answer: tuple[str, ...], row: LegalMovesRow) -> float:
    """The share of the listed moves that are legal, each counted once."""
    return len(legal_moves(position(row.fen)).keys() & set(answer)) / len(answer)


@reward(0.0)
def recall(answer: tuple[str, ...], row: LegalMovesRow) -> float:
    """The share of the legal moves that are listed."""
    legal = legal_moves(position(row.fen))
    return len(legal.keys() & set(answer)) / len(legal)


TASK = Task(
    "legal_moves",
    load,
    prompt,
    validate,
    (f1, precision, recall),
    config=LegalMovesConfig,
    row=LegalMovesRow,
    solved=lambda answer, row, text, parts: parts["f1"] == 1.0,
    default_model="chess-tiny",
    stop=("\n",),
    max_completion_length=224,
    on_timeout="fail",
)
"""Value: F1 of the listed and the legal moves; 0 for an answer that is no list of moves."""
