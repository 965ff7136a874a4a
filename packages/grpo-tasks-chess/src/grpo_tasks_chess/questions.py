"""Questions about a position whose answers are moves: their prompts and the reading of answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, TypeVar

import chess

from grpo_sdk import Invalid, TaskConfig
from grpo_sdk.data import DatasetConfig, read_rows
from grpo_tasks_chess.formats import first_line, is_uci
from grpo_tasks_chess.records import PositionRow, distinct, position_key, word
from grpo_tasks_chess.rules import position

RowType = TypeVar("RowType", bound=PositionRow)

Template = Literal["plain", "policy"]


class QuestionConfig(TaskConfig):
    """Option of the prompt.

    Attributes:
        template: `plain`, a question in words, or `policy`, a label and the position, as models that are trained on the
            lines of `chess.policy` read them.
    """

    template: Template = "plain"


def write_question(fen: str, question: str, label: str, template: Template) -> str:
    """Return the prompt of a question.

    Args:
        fen: FEN of the position.
        question: Last line of the plain form.
        label: First word of the short form.
        template: Form.
    """
    if template == "policy":
        return f"{label}: {fen}"
    return f"Chess, {side_to_move(fen)} to move.\nFEN: {fen}\n{question}"


def side_to_move(fen: str) -> str:
    """White or Black."""
    return "White" if fen.split()[1] == "w" else "Black"


def write_moves(moves: list[chess.Move]) -> str:
    """Return an answer: moves in the order in which a FEN has their first squares, then their last ones."""
    ordered = sorted(moves, key=lambda move: (move.from_square ^ 56, move.to_square ^ 56, move.promotion or 0))
    return "".join(f" {move.uci()}" for move in ordered)


def read_positions(config: DatasetConfig, row_of: Callable[[chess.Board], RowType]) -> Iterator[RowType]:
    """Yield the rows of a file of positions, `{fen}` in each record, each position once.

    Raises:
        DataError: no file, or a position that `row_of` refuses by a ValueError; names file, line and field.
    """
    rows = read_rows(
        config,
        lambda record: row_of(position(word(record, "fen"))),
        needs=("fen",),
        content=lambda row: position_key(row.fen),
    )
    return distinct(rows)


def read_move(text: str) -> str:
    """Read the one move that a completion is; errors are those of `read_moves`."""
    return read_moves(text, 1)[0]


def read_moves(text: str, most: int) -> tuple[str, ...]:
    """Read the moves on the first line of a completion; they may be illegal.

    Args:
        text: The completion.
        most: Largest number of moves.

    Raises:
        Invalid: there is no move, too many, or other text: a move in SAN, a remark.
    """
    moves = tuple(first_line(text).split())
    if not moves:
        raise Invalid("no move")
    if len(moves) > most:
        raise Invalid(f"{len(moves)} words where {'a move is' if most == 1 else 'moves are'} wanted")
    for move in moves:
        if not is_uci(move):
            raise Invalid(f"{move[:20]!r} is no move in UCI, as e2e4 or e7e8q")
    return moves
