"""`chess.mate_in_one`: find a move that mates; every one counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Literal

import chess
from pydantic import model_validator

from grpo_core import Task, reward
from grpo_core.data import CommaSeparated, DatasetConfig, read_rows, stable_id
from grpo_tasks_chess.data.positions import ATTACKERS, mates_in_one, mating_moves
from grpo_tasks_chess.questions import QuestionConfig, read_moves, write_moves, write_question
from grpo_tasks_chess.records import PositionRow, distinct, position_key, position_key_of, word
from grpo_tasks_chess.rules import legal_moves, position

GENERATED = 300
"""Default number of generated rows, which take a few seconds."""

MOST_REFUSED = 3000
"""Positions in a row with other themes after which no more are made; they take half a minute."""

Theme = Literal["pawn", "knight", "bishop", "rook", "queen", "king", "promotion", "discovered"]
"""How a move mates: the piece that moves; a pawn promotes; another piece gives the check, alone or too."""


class MateConfig(QuestionConfig, DatasetConfig):
    """Options of `chess.mate_in_one`.

    Attributes:
        size: Number of rows; by default 300 generated ones, or all of a file.
        themes: Take positions with at least one of these mates: by `pawn`, `knight`, `bishop`, `rook`, `queen` or
            `king`, the piece that moves; by `promotion`; by a check that is `discovered`.
        without_themes: Leave out positions with one of these mates, as to hold them out of training.
    """

    themes: CommaSeparated[Theme] = ()
    without_themes: CommaSeparated[Theme] = ()

    @model_validator(mode="after")
    def _leaves_a_piece(self) -> MateConfig:
        if self.attackers == {}:
            raise ValueError("without_themes leaves no piece that mates")
        return self

    @property
    def attackers(self) -> Mapping[chess.PieceType, float] | None:
        """The pieces that positions are composed of to have these themes; None without themes."""
        if not self.themes and not self.without_themes:
            return None
        wanted = {"pawn" if theme == "promotion" else theme for theme in self.themes}
        return {
            kind: often * (5 if chess.piece_name(kind) in wanted else 1)
            for kind, often in ATTACKERS.items()
            if chess.piece_name(kind) not in self.without_themes
        }

    def takes(self, row: MateRow) -> bool:
        """Whether a row has the configured themes."""
        has_one = not self.themes or not set(self.themes).isdisjoint(row.themes)
        return has_one and set(self.without_themes).isdisjoint(row.themes)


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
        themes=tuple(sorted({theme for move in mates for theme in _themes(board, move)})),
    )


def _themes(board: chess.Board, move: chess.Move) -> set[str]:
    piece = board.piece_type_at(move.from_square)
    assert piece is not None
    themes = {chess.piece_name(piece)} | ({"promotion"} if move.promotion else set())
    board.push(move)
    if board.checkers_mask() & ~chess.BB_SQUARES[move.to_square]:
        themes.add("discovered")
    board.pop()
    return themes


def make_row(record: Mapping[str, Any]) -> MateRow:
    """Make a row from `{fen}`.

    Raises:
        ValueError: the field is missing or wrong, or no move mates.
    """
    return row_of(position(word(record, "fen")))


def load(config: MateConfig) -> Iterator[MateRow]:
    """Positions in which a move mates: from generated games and composed endings, or a file."""
    if config.path is not None:
        rows = read_rows(config, make_row, needs=("fen",), content=lambda row: position_key(row.fen))
        return filter(config.takes, distinct(rows))
    boards = mates_in_one(config.seed, config.split, label="chess.mate_in_one", attackers=config.attackers)
    return islice(_taken(distinct(map(row_of, boards)), config), config.size or GENERATED)


def _taken(rows: Iterator[MateRow], config: MateConfig) -> Iterator[MateRow]:
    """Yield the rows that are taken, until none has been for long."""
    refused = 0
    for row in rows:
        if config.takes(row):
            refused = 0
            yield row
        elif (refused := refused + 1) == MOST_REFUSED:
            return


def prompt(row: MateRow, config: MateConfig) -> str:
    """Return the position and the question."""
    return write_question(row.fen, "Mate in one, the move in UCI:", "#", config.template)


def validate(text: str) -> str:
    """Read the move.

    Raises:
        Invalid: it is not one move in UCI.
    """
    return read_moves(text, 1)[0]


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
    validate,
    (mate, legal),
    config=MateConfig,
    row=MateRow,
    default_model="chess-tiny",
    stop=("\n",),
    max_completion_length=8,
    on_timeout="fail",
)
"""Value: 1.0 mate, 0.1 another legal move, 0 an illegal one or none."""
