"""Rows of `chess.policy`: positions, most of them with labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import chess

from grpo_sdk import Invalid
from grpo_sdk.data import stable_id
from grpo_tasks_chess import formats
from grpo_tasks_chess.records import PositionRow, is_text, numbers, position_key_of, word, words
from grpo_tasks_chess.rules import legal_moves, position


class PolicyRow(PositionRow):
    """A position and its best moves, if they are known; the difficulty is the number of legal moves.

    Attributes:
        moves: Best moves in UCI, in any order; empty if the position has no labels.
        evaluations: Evaluation of each of them, in pawns, for the side to move.
        best: Best move.
    """

    moves: tuple[str, ...] = ()
    evaluations: tuple[float, ...] = ()
    best: str = ""


def make_row(record: Mapping[str, Any]) -> PolicyRow:
    """Make a row from `{fen, moves, evaluations, best}`, from `{fen}` alone, or from `{text}`, a whole line.

    Raises:
        ValueError: a field is missing or wrong; says which.
    """
    fen, answer = _line(record) if is_text(record) else (word(record, "fen"), _labels(record))
    legal = legal_moves(position(fen))
    if not legal:
        raise ValueError(f"fen: {fen} has no legal move, so none is best")
    row = PolicyRow(id=stable_id(fen), fen=fen, difficulty=float(len(legal)))
    if answer is None:
        return row
    labelled_row = _checked(row, answer, legal)
    if not is_text(record):  # a line of RookWorld keeps what `data.rookworld` makes of it
        _refuse_better(labelled_row)
    return labelled_row


def generated_row(board: chess.Board) -> PolicyRow:
    """Make the row of a position without labels, in which the game is not over."""
    return PolicyRow(id=stable_id(position_key_of(board)), fen=board.fen(), difficulty=float(board.legal_moves.count()))


def _line(record: Mapping[str, Any]) -> tuple[str, formats.PolicyAnswer | None]:
    try:
        return formats.read_policy_line(word(record, "text"))
    except Invalid as problem:
        raise ValueError(f"text: {problem}") from None


def _labels(record: Mapping[str, Any]) -> formats.PolicyAnswer | None:
    moves = words(record, "moves")
    return formats.PolicyAnswer(moves, numbers(record, "evaluations"), word(record, "best")) if moves else None


def _checked(row: PolicyRow, answer: formats.PolicyAnswer, legal: Mapping[str, Any]) -> PolicyRow:
    for move in answer.moves:
        if move not in legal:
            raise ValueError(f"moves: {move[:20]!r} is no legal move, in UCI, of {row.fen}")
    if len(answer.moves) != len(answer.evaluations) or len(set(answer.moves)) < len(answer.moves):
        raise ValueError(f"evaluations: {len(answer.evaluations)} for {len(set(answer.moves))} different moves")
    if answer.best not in answer.moves:
        raise ValueError(f"best: {answer.best[:20]!r} is none of the moves")
    if any(abs(each) > formats.MATE_PAWNS for each in answer.evaluations):
        raise ValueError(f"evaluations: in pawns, within ±{formats.MATE_PAWNS:g}: a mate in n is 1000 − n/100")
    return labelled(row, answer)


def _refuse_better(row: PolicyRow) -> None:
    worth = dict(zip(row.moves, row.evaluations, strict=True))
    better = max(worth, key=worth.__getitem__)
    if worth[better] > worth[row.best]:
        raise ValueError(f"best: {row.best} is evaluated {worth[row.best]:g}, and {better} {worth[better]:g}")


def labelled(row: PolicyRow, answer: formats.PolicyAnswer) -> PolicyRow:
    """Return a row with labels and the gold completion that they make."""
    # Rounded as in the gold completion, so that it is graded as exact.
    evaluations = tuple(float(formats.format_evaluation(each)) for each in answer.evaluations)
    labels = {"moves": answer.moves, "evaluations": evaluations, "best": answer.best}
    return row.model_copy(update={**labels, "gold": formats.write_policy_completion(answer, row.fen)})


def best_first(row: PolicyRow) -> str:
    """Return the gold completion of a row with labels, with its moves from best to worst."""
    worth = dict(zip(row.moves, row.evaluations, strict=True))
    moves = sorted(row.moves, key=lambda move: (move != row.best, -worth[move]))
    answer = formats.PolicyAnswer(tuple(moves), tuple(worth[move] for move in moves), row.best)
    return formats.write_policy_completion(answer, row.fen)
