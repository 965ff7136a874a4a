"""`chess.mate_in_one`: find a move that mates; every one counts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import chess

from grpo_sdk import Task, reward
from grpo_sdk.data import DatasetConfig, stable_id
from grpo_tasks_chess.data.mates import GENERATED, ThemesConfig, mates_in_one, mating_moves, themes_of
from grpo_tasks_chess.questions import QuestionConfig, read_move, read_positions, write_moves, write_question
from grpo_tasks_chess.records import PositionRow, distinct, position_key_of
from grpo_tasks_chess.rules import legal_moves, position


class MateConfig(ThemesConfig, QuestionConfig, DatasetConfig):
    """Options of `chess.mate_in_one`.

    Attributes:
        size: Number of rows; by default 300 generated ones, or all of a file.
    """


class MateRow(PositionRow):
    """A position with a mate in one; its difficulty is the number of legal moves.

    Attributes:
        mates: The moves that mate, in UCI.
        themes: How they mate.
    """

    mates: tuple[str, ...]
    themes: tuple[str, ...]


def row_of(board: chess.Board) -> MateRow:
    """Make the row of a position.

    Raises:
        ValueError: no move mates.
    """
    mates, fen = mating_moves(board), board.fen()
    if not mates:
        raise ValueError(f"fen: no move mates in {fen}")
    return MateRow(
        id=stable_id(position_key_of(board)),
        gold=write_moves(mates[:1]),
        difficulty=float(board.legal_moves.count()),
        fen=fen,
        mates=tuple(move.uci() for move in mates),
        themes=themes_of(board, mates),
    )


def load(config: MateConfig) -> Iterator[MateRow]:
    """Positions in which a move mates: from generated games and composed endings, or a file."""
    if config.path is not None:
        return (row for row in read_positions(config, row_of) if config.takes(row.themes))
    boards = mates_in_one(config.seed, config.split, label="chess.mate_in_one", attackers=config.attackers)
    return islice(config.taken(distinct(map(row_of, boards)), lambda row: row.themes), config.size or GENERATED)


def prompt(row: MateRow, config: MateConfig) -> str:
    """Return the position and the question."""
    return write_question(row.fen, "Mate in one, the move in UCI:", "#", config.template)


@reward(0.9)
def mate(answer: str, row: MateRow) -> float:
    """1 for a move that mates."""
    return float(answer in row.mates)


@reward(0.1)
def legal(answer: str, row: MateRow) -> float:
    """1 for a legal move."""
    return float(answer in legal_moves(position(row.fen)))


TASK = Task(
    "mate_in_one",
    load,
    prompt,
    read_move,
    (mate, legal),
    config=MateConfig,
    row=MateRow,
    default_model="chess-tiny",
    stop=("\n",),
    max_completion_length=8,
    on_timeout="fail",
)
"""Value: 1.0 mate, 0.1 another legal move, 0 an illegal one or none."""
