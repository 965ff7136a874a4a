"""Grades of an answer to a position: pure functions of the answer, the legal moves and their known evaluations."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from grpo_sdk import Invalid
from grpo_tasks_chess.formats import PolicyFields, is_uci, read_evaluation, read_policy_fields

Source = Literal["labels", "engine", "search", "legality"]

EVALUATION_LIMIT = 10.0
"""Pawns to which evaluations are clipped, since beyond it a position is won."""

RANKS = ((1, 1.0), (3, 0.7), (5, 0.5))
"""Grades of the best move by its rank among the known ones: (last rank, grade)."""

LEGAL = 0.2
"""Grade of a legal best move of unknown rank."""

ALL_LEGAL = 0.3
"""Grade of candidates that are all legal, if only legality is known."""

EVALUATED = 0.1
"""Grade of evaluations, if only legality is known."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A completion with at least one move, one number and one best move in their places.

    Attributes:
        moves: Words after `M:`; some may not be moves.
        numbers: Numbers after `E:`; None for a word that is not a number.
        best: Move after `B:`.
    """

    moves: tuple[str, ...]
    numbers: tuple[float | None, ...]
    best: str

    @property
    def evaluations(self) -> dict[str, float]:
        """Evaluations by their moves; for a repeated move, the first one."""
        pairs = zip(self.moves, self.numbers, strict=False)  # the format is graded elsewhere
        return dict(reversed([(move, number) for move, number in pairs if number is not None]))


@dataclass(frozen=True, slots=True)
class Truth:
    """Known evaluations of a position's moves.

    Attributes:
        source: The row's labels, the engine, the built-in search, or legality alone.
        best: Best move; empty if only legality is known.
        evaluations: Best move -> evaluation in pawns, for the side to move.
    """

    source: Source
    best: str = ""
    evaluations: Mapping[str, float] = field(default_factory=dict)

    def rank(self, move: str) -> int | None:
        """Return the rank of a move: 1 for the best one and equal ones; None for a move without evaluation."""
        if move == self.best:
            return 1
        if move not in self.evaluations:
            return None
        return 1 + sum(each > self.evaluations[move] for each in self.evaluations.values())


def read_answer(text: str) -> Answer:
    """Read the answer of a completion, which need not have the full form (see `format_grade`).

    Raises:
        Invalid: one of the three fields is missing or has no valid entry; names the field.
    """
    fields: PolicyFields = read_policy_fields(text)
    numbers = tuple(map(read_evaluation, fields.evaluations))
    if not any(map(is_uci, fields.moves)):
        raise Invalid("no move in UCI, as e2e4, after M:")
    if all(number is None for number in numbers):
        raise Invalid("no number after E:")
    if len(fields.best) != 1 or not is_uci(fields.best[0]):
        raise Invalid("not one move in UCI, as e2e4, after B:")
    return Answer(fields.moves, numbers, fields.best[0])


def is_full_form(answer: Answer, legal: Collection[str]) -> bool:
    """Whether there are as many evaluations as moves, the best one among them, and every move is legal."""
    return (
        len(answer.moves) == len(answer.numbers)
        and None not in answer.numbers
        and answer.best in answer.moves
        and all(move in legal for move in answer.moves)
    )


def format_grade(answer: Answer, legal: Collection[str]) -> float:
    """Return 1 for the full form; else half the mean of three scores.

    These are: min/max of the numbers of moves and evaluations; whether the best move is a candidate; the share of legal
    moves.
    """
    if is_full_form(answer, legal):
        return 1.0
    counts = sorted((len(answer.moves), sum(number is not None for number in answer.numbers)))
    is_candidate = answer.best in answer.moves
    return (counts[0] / counts[1] + is_candidate + _share(answer.moves, legal)) / 6


def best_move_grade(best: str, truth: Truth, legal: Collection[str]) -> float:
    """Return the grade by rank: 1.0 for the best, 0.7 to the third, 0.5 to the fifth, 0.2 if legal, 0 if illegal."""
    if best not in legal:
        return 0.0
    rank = truth.rank(best)
    return next((worth for last, worth in RANKS if rank is not None and rank <= last), LEGAL)


def candidates_grade(moves: Sequence[str], truth: Truth, legal: Collection[str]) -> float:
    """Return the number of known best moves that are listed / max(number of known ones, number of listed words).

    Dividing by the larger count rewards neither listing a single move nor listing all of them. (RookWorld divides by
    the legal ones among the listed.) If only legality is known: 0.3 times the share of different legal moves.
    """
    if truth.source == "legality":
        return ALL_LEGAL * _share(moves, legal)
    known = {move for move in truth.evaluations if move in legal}
    return len(known.intersection(moves)) / max(len(known), len(moves), 1)


def _share(moves: Sequence[str], legal: Collection[str]) -> float:
    """Return the share of words that are legal moves, counting each move once."""
    return len(set(moves).intersection(legal)) / len(moves)


def evaluations_grade(evaluations: Mapping[str, float], truth: Truth) -> float:
    """Return the mean over the known moves of max(0, 1 − |Δ| / (|true| + 1)), in pawns clipped to ±10; 0 if missing.

    Evaluations are compared by move, not by position in the list, since both lists are in random order. If only
    legality is known, the grade is 0.1.
    """
    if truth.source == "legality":
        return EVALUATED
    worth = [
        max(0.0, 1.0 - abs(clipped(evaluations[move]) - clipped(true)) / (abs(clipped(true)) + 1.0))
        for move, true in truth.evaluations.items()
        if move in evaluations
    ]
    return sum(worth) / max(len(truth.evaluations), 1)


def evaluation_errors(evaluations: Mapping[str, float], truth: Truth) -> tuple[float, ...]:
    """Return |Δ| in pawns, clipped to ±10, of every known move that is evaluated."""
    return tuple(
        abs(clipped(evaluations[move]) - clipped(true))
        for move, true in truth.evaluations.items()
        if move in evaluations
    )


def clipped(pawns: float) -> float:
    """Clip an evaluation to ±`EVALUATION_LIMIT`."""
    return max(-EVALUATION_LIMIT, min(EVALUATION_LIMIT, pawns))
