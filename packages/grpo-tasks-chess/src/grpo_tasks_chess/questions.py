"""Questions about a position whose answers are moves: `chess.best_move`, `chess.mate_in_one`, `chess.legal_moves`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from random import Random
from typing import Literal, TypeVar

import chess
from pydantic import Field

from grpo_sdk import Invalid, Task, TaskConfig, reward
from grpo_sdk.data import DatasetConfig, read_rows, stable_id
from grpo_tasks_chess.data.mates import GENERATED as GENERATED_MATES
from grpo_tasks_chess.data.mates import ThemesConfig, mates_in_one, mating_moves, themes_of
from grpo_tasks_chess.data.positions import positions
from grpo_tasks_chess.formats import first_line, is_uci
from grpo_tasks_chess.policy.grading import best_move_grade
from grpo_tasks_chess.policy.labels import TASK_TIMEOUT_S, truth_of, with_labels
from grpo_tasks_chess.policy.rows import PolicyRow
from grpo_tasks_chess.policy.task import PositionsConfig, conditions, graded_by_labels
from grpo_tasks_chess.policy.task import load as load_positions
from grpo_tasks_chess.records import PositionRow, distinct, position_key, position_key_of, word
from grpo_tasks_chess.rules import legal_moves, position

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


class BestMoveConfig(QuestionConfig, PositionsConfig):
    """Options of `chess.best_move`."""


def load_best_moves(config: BestMoveConfig) -> Iterator[PolicyRow]:
    """Positions: generated, with labels from the package, or of a file of `chess.policy`."""
    for row in load_positions(config):
        yield row.model_copy(update={"gold": f" {row.best}"}) if row.best else row


def demos(config: BestMoveConfig) -> Iterator[tuple[str, str]]:
    """Yield the prompt and best move of each row."""
    random = Random(f"demos/{config.seed}/{config.split}")
    for row in load_positions(config):
        labelled = with_labels(row, config, random)
        if labelled is not None:
            yield ask_best_move(row, config), f" {labelled.best}"


def ask_best_move(row: PolicyRow, config: BestMoveConfig) -> str:
    """Return the position and the question."""
    return write_question(row.fen, "Best move in UCI:", "B", config.template)


@reward(1.0)
def best_move(answer: str, row: PolicyRow, config: BestMoveConfig) -> float:
    """The move's worth by its rank: 1.0 the best, 0.7 to the third, 0.5 to the fifth, 0.2 if legal, 0 if illegal."""
    return best_move_grade(answer, truth_of(row, config), legal_moves(position(row.fen)))


@reward(0.0)
def best_move_accuracy(answer: str, row: PolicyRow, config: BestMoveConfig) -> float:
    """1 when no known move is better; 0 also where none is known."""
    return float(truth_of(row, config).rank(answer) == 1)


@reward(0.0)
def legality(answer: str, row: PolicyRow) -> float:
    """1 for a legal move."""
    return float(answer in legal_moves(position(row.fen)))


BEST_MOVE = Task(
    "best_move",
    load_best_moves,
    ask_best_move,
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


def mate_row(board: chess.Board) -> MateRow:
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


def load_mates(config: MateConfig) -> Iterator[MateRow]:
    """Positions in which a move mates: from generated games and composed endings, or a file."""
    if config.path is not None:
        return (row for row in read_positions(config, mate_row) if config.takes(row.themes))
    boards = mates_in_one(config.seed, config.split, label="chess.mate_in_one", attackers=config.attackers)
    return islice(config.taken(distinct(map(mate_row, boards)), lambda row: row.themes), config.size or GENERATED_MATES)


def ask_mate(row: MateRow, config: MateConfig) -> str:
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


MATE_IN_ONE = Task(
    "mate_in_one",
    load_mates,
    ask_mate,
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


def legal_moves_row(board: chess.Board) -> LegalMovesRow:
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


def load_legal_moves(config: LegalMovesConfig) -> Iterator[LegalMovesRow]:
    """Positions of generated games, or of a file."""
    if config.path is not None:
        return (row for row in read_positions(config, legal_moves_row) if (row.difficulty or 0) <= config.max_moves)
    boards = positions(config.seed, config.split, label="chess.legal_moves", in_check=config.in_check)
    generated = (legal_moves_row(board) for board in boards if board.legal_moves.count() <= config.max_moves)
    return islice(distinct(generated), config.size or GENERATED)


def ask_legal_moves(row: LegalMovesRow, config: LegalMovesConfig) -> str:
    """Return the position and the question."""
    return write_question(row.fen, "All legal moves in UCI:", "M", config.template)


def read_all_moves(text: str) -> tuple[str, ...]:
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


LEGAL_MOVES = Task(
    "legal_moves",
    load_legal_moves,
    ask_legal_moves,
    read_all_moves,
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
