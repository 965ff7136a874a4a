"""Reading and validating the fields of a dataset's records."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import chess

from grpo_sdk import Row
from grpo_tasks_chess.formats import FLAGS

RowType = TypeVar("RowType", bound=Row)

MAX_FIELD_CHARS = 4000
"""Longest field that is accepted."""

_NUMBER = re.compile(r"[+-]?[0-9]{1,9}(?:\.[0-9]{1,9})?")  # bounded: float() of a long string takes long


class PositionRow(Row):
    """A row with a position.

    Attributes:
        fen: FEN of the position.
    """

    fen: str


def is_text(record: Mapping[str, Any]) -> bool:
    """Whether a record is a line of text instead of fields."""
    return "text" in record and "fen" not in record


def word(record: Mapping[str, Any], name: str) -> str:
    """Read a field that holds text.

    Raises:
        ValueError: it is missing, not text, or too long.
    """
    value = record.get(name)
    if not isinstance(value, str):
        problem = "missing" if value is None else f"a {type(value).__name__} where text is wanted"
        raise ValueError(f"{name}: {problem}; the record has {', '.join(map(str, record))[:200]}")
    if len(value) > MAX_FIELD_CHARS:
        raise ValueError(f"{name}: more than {MAX_FIELD_CHARS} characters")
    return value.strip()


def words(record: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Read a field that holds a list of words, or words separated by spaces; empty if it is missing.

    Raises:
        ValueError: it holds something else.
    """
    value = record.get(name)
    if value is None:
        return ()
    if isinstance(value, str):
        return tuple(word(record, name).split())
    if not isinstance(value, (list, tuple)) or not all(isinstance(each, str) for each in value):
        raise ValueError(f"{name}: a list of words is wanted, as ['e2e4', 'd2d4']")
    return tuple(value)


def numbers(record: Mapping[str, Any], name: str) -> tuple[float, ...]:
    """Read a field that holds a list of numbers, or numbers separated by spaces; empty if it is missing.

    Raises:
        ValueError: it holds something else.
    """
    value = record.get(name)
    listed = value.split() if isinstance(value, str) else value if isinstance(value, (list, tuple)) else (value,)
    return tuple(number(each, name) for each in listed if each is not None)


def number(value: Any, name: str) -> float:
    """Read a number, or text that is one.

    Raises:
        ValueError: it is not a number.
    """
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        return float(value)
    if isinstance(value, (int, float)) and math.isfinite(value) and abs(value) < 1e9:
        return float(value)
    raise ValueError(f"{name}: {str(value)[:40]!r} is no number")


def flag(value: Any, name: str) -> bool:
    """Read a truth value, given as a bool, as 0 or 1, or as a word.

    Raises:
        ValueError: it is not a truth value.
    """
    read = FLAGS.get(str(value)[:10].lower())
    if read is None:
        raise ValueError(f"{name}: {str(value)[:40]!r} is neither true nor false")
    return read


def position_key(fen: str) -> str:
    """Return the key by which positions are equal: board, side to move, castling and en passant, without the clocks."""
    return " ".join(fen.split()[:4])


def position_key_of(board: chess.Board) -> str:
    """Return `position_key(board.fen())` in a fifth of the time: `board_fen` looks at each square by itself."""
    squares = ["1"] * 64
    for color, symbols in ((chess.WHITE, "PNBRQK"), (chess.BLACK, "pnbrqk")):
        for piece, symbol in enumerate(symbols, 1):
            for square in chess.scan_forward(board.pieces_mask(piece, color)):
                squares[square] = symbol
    placement = "/".join("".join(squares[rank : rank + 8]) for rank in range(56, -8, -8))
    for empty in range(8, 1, -1):
        placement = placement.replace("1" * empty, str(empty))
    passing = board.ep_square if board.has_legal_en_passant() else None
    return " ".join(
        (
            placement,
            "w" if board.turn else "b",
            board.castling_xfen(),
            "-" if passing is None else chess.square_name(passing),
        )
    )


def distinct(rows: Iterable[RowType]) -> Iterator[RowType]:
    """Yield rows without those with an earlier id, since games share positions."""
    seen: set[str] = set()
    for row in rows:
        if row.id not in seen:
            seen.add(row.id)
            yield row
