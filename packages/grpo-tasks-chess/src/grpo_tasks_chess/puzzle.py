"""`chess.puzzle`: find the only good move of a position, or the whole line of a combination."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, Literal, NamedTuple

import chess
from pydantic import Field, model_validator

from grpo_sdk import Row, Task, UserError, reward
from grpo_sdk.data import CommaSeparated, DatasetConfig, read_records, read_rows, split_of, stable_id
from grpo_tasks_chess.data.mates import mates_in_one, mating_moves
from grpo_tasks_chess.data.positions import positions
from grpo_tasks_chess.formats import MATE_PAWNS, read_policy_fields, write_policy_prompt
from grpo_tasks_chess.questions import Template, read_moves, side_to_move
from grpo_tasks_chess.records import distinct, number, position_key, position_key_of, word, words
from grpo_tasks_chess.rules import legal_moves, position
from grpo_tasks_chess.search import SEARCH_DEPTH, VALUES, best_moves, gain

HUB = "Lichess/chess-puzzles"
"""The puzzle database on the hub: CC0, one split, columns as in the CSV file."""

MAX_MOVES = 64
"""Longest answer in moves; the longest lines of the database have about 30."""

GENERATED = 100
"""Default number of generated puzzles, which take a few seconds."""

MATE_SHARE = 0.3
"""Share of generated puzzles that are mates in one."""

ADVANTAGE_PAWNS, MARGIN_PAWNS = 1.5, 2.0
"""Smallest evaluation of the solution of a generated puzzle, and by how much it is above the next move's."""

Answering = Literal["move", "line"]


THEMES = ("mateIn1", "advantage")
"""Themes of generated puzzles, by Lichess's names."""


class PuzzleConfig(DatasetConfig):
    """Options of `chess.puzzle`.

    Attributes:
        size: Number of rows; by default 100 generated ones, or all of a file or the database.
        rows: Source of the rows without a file: `generated` from the seed, or `lichess`, the database on the hub.
        answer: `move`, the best reply, or `line`, all moves of the solution, including the opponent's.
        template: `plain`, a question in words, or `policy`, the prompt of `chess.policy`, whose `B:` is the answer.
        min_rating: Lowest rating of the puzzles.
        max_rating: Highest rating of the puzzles.
        themes: Take puzzles with at least one of these themes: `themes=mateIn1,fork`.
    """

    rows: Literal["generated", "lichess"] = "generated"
    answer: Answering = "move"
    template: Template = "plain"
    min_rating: int | None = Field(default=None, ge=0)
    max_rating: int | None = Field(default=None, ge=0)
    themes: CommaSeparated[str] = ()

    @model_validator(mode="after")
    def _fits(self) -> PuzzleConfig:
        if self.answer == "line" and self.template == "policy":
            raise ValueError("answer=line asks for all moves, and template=policy has room for one")
        if self.min_rating is not None and self.max_rating is not None and self.min_rating > self.max_rating:
            raise ValueError(f"min_rating {self.min_rating} is above max_rating {self.max_rating}")
        if self.is_generated and (self.min_rating, self.max_rating) != (None, None):
            raise ValueError("generated puzzles have no rating: give rows=lichess, or a file by path")
        if self.is_generated and not {*self.themes} <= {*THEMES}:
            raise ValueError(f"themes of generated puzzles are {', '.join(THEMES)}; others need rows=lichess or path")
        return self

    @property
    def is_generated(self) -> bool:
        """Whether the rows are generated."""
        return self.path is None and self.rows == "generated"

    def takes(self, row: PuzzleRow) -> bool:
        """Whether a puzzle has the configured rating and themes."""
        low = 0 if self.min_rating is None else self.min_rating
        high = math.inf if self.max_rating is None else self.max_rating
        if (low, high) != (0, math.inf) and (row.difficulty is None or not low <= row.difficulty <= high):
            return False
        return not self.themes or not set(self.themes).isdisjoint(row.themes)


class PuzzleRow(Row):
    """A position to solve; its difficulty is the puzzle's rating.

    Attributes:
        fen: Position after the opponent's move.
        solution: Moves from there on, including the opponent's; each of the solver's is the only good one.
        is_mate: Whether the solution ends in mate; then any move that mates is right.
        themes: Themes of the puzzle, as `fork`.
    """

    fen: str
    solution: tuple[str, ...]
    is_mate: bool
    themes: tuple[str, ...] = ()


def load_csv(path: str | Path, *, answer: Answering = "move") -> list[PuzzleRow]:
    """Load all puzzles of a Lichess CSV file (or JSONL or parquet with its columns), in order.

    Args:
        path: File with the columns FEN and Moves, and optionally PuzzleId, Rating and Themes.
        answer: Form of the rows' gold, see `PuzzleConfig`.

    Raises:
        UserError: no file, or an invalid puzzle; names file, line and field.
    """
    rows = []
    for where, record in read_records(str(path)):
        try:
            rows.append(_with_gold(make_row(record), PuzzleConfig(answer=answer)))
        except ValueError as problem:
            raise UserError(f"{where}: {problem}") from None
    return rows


def make_row(record: Mapping[str, Any]) -> PuzzleRow:
    """Make a row from a record with the columns of the Lichess database.

    Raises:
        ValueError: a column is missing or wrong, or a move is illegal; says which.
    """
    start, moves = word(record, "FEN"), words(record, "Moves")
    if not 2 <= len(moves) <= MAX_MOVES:
        raise ValueError(f"Moves: {len(moves)}; a puzzle is the opponent's move and 1 to {MAX_MOVES - 1} more")
    board = position(start)
    fen = ""
    for move in moves:
        legal = legal_moves(board).get(move)
        if legal is None:
            raise ValueError(f"Moves: {move[:20]!r} is no legal move, in UCI, of {board.fen()}")
        board.push(legal)
        fen = fen or board.fen()  # the first move is the opponent's; the puzzle starts after it
    rating = record.get("Rating")
    return PuzzleRow(
        id=word(record, "PuzzleId") if record.get("PuzzleId") else stable_id(f"{fen} {' '.join(moves)}"),
        difficulty=None if rating in (None, "") else number(rating, "Rating"),
        fen=fen,
        solution=moves[1:],
        is_mate=board.is_checkmate(),
        themes=words(record, "Themes"),
    )


def _with_gold(row: PuzzleRow, config: PuzzleConfig) -> PuzzleRow:
    if config.template == "policy":
        return row  # a policy line would need candidates and evaluations, which are not known
    moves = row.solution if config.answer == "line" else row.solution[:1]
    return row.model_copy(update={"gold": f" {' '.join(moves)}"})


def load(config: PuzzleConfig) -> Iterator[PuzzleRow]:
    """The only good move of a position: generated, of Lichess's database (hub:Lichess/chess-puzzles), or of a file."""
    found = distinct(generated(config) if config.is_generated else _rows(config))
    taken = (_with_gold(row, config) for row in found if config.takes(row))
    return islice(taken, config.size or GENERATED) if config.is_generated else taken


def generated(config: PuzzleConfig) -> Iterator[PuzzleRow]:
    """Yield puzzles without end: mates in one, and positions in which the built-in search sees one winning move."""
    random = Random(f"chess.puzzle/{config.seed}")
    mates = mates_in_one(config.seed, config.split, label="chess.puzzle")
    boards = positions(config.seed, config.split, label="chess.puzzle")
    shares = {"mateIn1": MATE_SHARE, "advantage": 1 - MATE_SHARE}
    wanted = [theme for theme in THEMES if not config.themes or theme in config.themes]
    while True:
        (theme,) = random.choices(wanted, [shares[theme] for theme in wanted])
        if theme == "mateIn1":
            board = next(mates)
            yield _generated(board, mating_moves(board)[0].uci(), (theme, "mate"))
        else:
            board, move = next((board, move) for board in boards if (move := _winning_move(board)))
            yield _generated(board, move, (theme,))


def _winning_move(board: chess.Board) -> str:
    """The move that wins material where no other does nearly as well, and no move mates; else empty."""
    if max((gain(board, move) for move in board.legal_moves), default=0) < VALUES[chess.PAWN]:
        return ""
    for depth in (1, SEARCH_DEPTH):  # the first says at a quarter of the time that most positions have none
        lines = best_moves(board.fen(), lines=2, depth=depth)
        if len(lines) < 2 or not ADVANTAGE_PAWNS <= lines[0].evaluation < MATE_PAWNS / 2:
            return ""
        if lines[0].evaluation - lines[1].evaluation < MARGIN_PAWNS:
            return ""
    return lines[0].move


def _generated(board: chess.Board, move: str, themes: tuple[str, ...]) -> PuzzleRow:
    return PuzzleRow(
        id=stable_id(position_key_of(board)), fen=board.fen(), solution=(move,), is_mate="mate" in themes, themes=themes
    )


def _rows(config: PuzzleConfig) -> Iterator[PuzzleRow]:
    is_published = config.path is None  # with one split, train
    source = config.model_copy(update={"path": f"hub:{HUB}", "split": "train"}) if is_published else config
    rows = read_rows(source, make_row, needs=("FEN", "Moves"), content=content)
    return (row for row in rows if not is_published or split_of(content(row)) == config.split)


def content(row: PuzzleRow) -> str:
    """Return the key by which rows are the same problem: their position."""
    return position_key(row.fen)


def prompt(row: PuzzleRow, config: PuzzleConfig) -> str:
    """Return the prompt: the position, the side to move, and the form of the answer."""
    if config.template == "policy":
        return write_policy_prompt(row.fen)
    request = "Best line, the moves of both sides in UCI:" if config.answer == "line" else "Best move in UCI:"
    return f"Chess puzzle, {side_to_move(row.fen)} to move.\nFEN: {row.fen}\n{request}"


def validate(text: str, config: PuzzleConfig) -> tuple[str, ...]:
    """Read the moves on the first line; with `template=policy` the one after `B:`.

    Raises:
        Invalid: there is no move, or other text: a move in SAN, a remark.
    """
    if config.template == "policy":
        return read_moves(" ".join(read_policy_fields(text).best), 1)
    return read_moves(text, MAX_MOVES)


class Played(NamedTuple):
    """Result of playing a line of moves.

    Attributes:
        legal: Number of moves that could be played, one after the other.
        right: Number of moves that agree with the solution from its start; all of the solution after a mate.
    """

    legal: int
    right: int


@lru_cache(maxsize=64)  # both rewards ask about one answer after the other
def play_line(row: PuzzleRow, moves: tuple[str, ...]) -> Played:
    """Play an answer's moves on the puzzle's board."""
    board = position(row.fen)
    right = 0
    for index, move in enumerate(moves):
        legal = legal_moves(board).get(move)
        if legal is None:
            return Played(index, right)
        board.push(legal)
        is_ours, agrees = index % 2 == 0, right == index
        if agrees and is_ours and row.is_mate and board.is_checkmate():
            right = len(row.solution)
        elif agrees and index < len(row.solution) and move == row.solution[index]:
            right += 1
    return Played(len(moves), right)


def _graded(moves: tuple[str, ...], config: PuzzleConfig) -> tuple[str, ...]:
    """Return the moves that are graded: with `answer=move` the first one only."""
    return moves if config.answer == "line" else moves[:1]


@reward(0.1)
def legal(answer: tuple[str, ...], row: PuzzleRow, config: PuzzleConfig) -> float:
    """The share of the moves that can be played, one after the other."""
    moves = _graded(answer, config)
    return play_line(row, moves).legal / len(moves)


@reward(0.9)
def solution(answer: tuple[str, ...], row: PuzzleRow, config: PuzzleConfig) -> float:
    """The share of the solution that is found from its first move on; moves after its end count against it."""
    moves = _graded(answer, config)
    right = play_line(row, moves).right
    if config.answer == "move":
        return float(right > 0)
    return right / max(len(row.solution), len(moves))


TASK = Task(
    "puzzle",
    load,
    prompt,
    validate,
    (legal, solution),
    config=PuzzleConfig,
    row=PuzzleRow,
    default_model="chess-tiny",
    stop=("\n",),
    max_completion_length=176,  # a policy line at a token per character; an answer in moves is shorter
    on_timeout="fail",
)
"""Value: 1.0 right; 0.1 another legal move; in between the share of a line; 0.0 no legal move."""
