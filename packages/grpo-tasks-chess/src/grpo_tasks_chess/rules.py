"""The rules of chess for the tasks: reading a position, its legal moves, the outcome of a move."""

from __future__ import annotations

import re
from collections.abc import Sequence

import chess

from grpo_sdk import UserError
from grpo_tasks_chess.formats import EnvironmentAnswer, Transition, transition_problem

MATE, DRAW, ONGOING, ILLEGAL = 1.0, 0.5, 0.001, -1.0
"""Reward of a move for the player who made it."""

_FIELDS = {
    "pieces": r"[pnbrqkPNBRQK1-8/]{15,71}",
    "side to move": r"[wb]",
    "castling rights": r"-|[KQkq]{1,4}",
    "en-passant square": r"-|[a-h][36]",
    "half-move clock": r"[0-9]{1,4}",  # ASCII digits, and few of them: python-chess gives these fields to int()
    "move number": r"[0-9]{1,4}",
}
"""Field of a FEN -> its form."""

_UNPLAYABLE = {
    chess.STATUS_EMPTY: "no piece",
    chess.STATUS_NO_WHITE_KING: "no white king",
    chess.STATUS_NO_BLACK_KING: "no black king",
    chess.STATUS_TOO_MANY_KINGS: "more than one king of a colour",
    chess.STATUS_PAWNS_ON_BACKRANK: "a pawn on the first or last rank",
    chess.STATUS_OPPOSITE_CHECK: "a king in check that is not to move",
}
"""Faults with which legal moves are undefined. Positions that no game reaches but that can be played are allowed."""


def read_fen(fen: str) -> chess.Board:
    """Return the board of a FEN with all six fields, whether or not it can be played.

    Raises:
        UserError: it is not a FEN.
    """
    fields = fen.split(" ", len(_FIELDS))
    if len(fields) != len(_FIELDS):
        raise UserError(
            f"no FEN: {fen[:100]!r}. It has six fields, as rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1."
        )
    for (name, form), field in zip(_FIELDS.items(), fields, strict=True):
        if re.fullmatch(form, field) is None:
            raise UserError(f"no FEN: {field[:80]!r} is no {name}, in {fen[:100]!r}.")
    try:
        return chess.Board(fen)
    except ValueError as error:
        raise UserError(f"no FEN: {error}.") from None


def position(fen: str) -> chess.Board:
    """Return the board of a FEN on which legal moves are defined.

    Raises:
        UserError: it is not a FEN, or legal moves are undefined, as without a king.
    """
    board = read_fen(fen)
    status = board.status()
    problems = [text for flag, text in _UNPLAYABLE.items() if status & flag]
    if problems:
        raise UserError(f"a position that cannot be played, with {problems[0]}: {fen[:100]!r}.")
    return board


def legal_moves(board: chess.Board) -> dict[str, chess.Move]:
    """Return the legal moves by their UCI spelling: castling is `e1g1`, never `e1h1`."""
    return {move.uci(): move for move in board.legal_moves}


def play(fen: str, move: str, history: Sequence[str]) -> EnvironmentAnswer:
    """Return the outcome of a move: the part of an `A:` line after its third `+`.

    Draws are those that need no claim and depend on the position alone: stalemate, insufficient material, 75 moves.
    Fivefold repetition takes at least 16 half-moves, more than a history holds.

    Args:
        fen: Position before the move.
        move: Move in UCI; an illegal one leaves the board unchanged.
        history: Last moves of the game, at most ten, oldest first; the last one is `move`.

    Raises:
        UserError: the FEN or the history is invalid.
    """
    problem = transition_problem(Transition(fen, move, tuple(history)))
    if problem:
        raise UserError(f"{problem}.")
    board = position(fen)
    legal = legal_moves(board).get(move)
    if legal is None:
        return EnvironmentAnswer(board.fen(), ILLEGAL, terminated=False, truncated=True)
    board.push(legal)
    outcome = board.outcome()
    if outcome is None:
        return EnvironmentAnswer(board.fen(), ONGOING, terminated=False, truncated=False)
    reward = MATE if outcome.termination is chess.Termination.CHECKMATE else DRAW
    return EnvironmentAnswer(board.fen(), reward, terminated=True, truncated=False)
