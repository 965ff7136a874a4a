"""A small search for machines without an engine: material, piece-square tables, and captures to their end."""

from __future__ import annotations

import math
from collections.abc import Iterator

import chess

from grpo_tasks_chess.formats import MATE_PAWNS, Line
from grpo_tasks_chess.rules import position

SEARCH = "search"
"""Its name where an engine may be named."""

VERSION = 1
"""Version of its evaluations, recorded with the labels that it made."""

SEARCH_DEPTH = 2
"""Default depth in plies."""

MAX_DEPTH = 3
"""Deepest search, in plies; one more takes six times as long."""

VALUES = {chess.PAWN: 100, chess.KNIGHT: 320, chess.BISHOP: 330, chess.ROOK: 500, chess.QUEEN: 900, chess.KING: 0}
"""Worth of the pieces in centipawns."""

# Worth of a square in centipawns, from the eighth rank to the first: Tomasz Michniewski's Simplified Evaluation
# Function (https://www.chessprogramming.org/Simplified_Evaluation_Function), that of the king for the middle game.
_TABLES = {
    chess.PAWN: """
         0   0   0   0   0   0   0   0    50  50  50  50  50  50  50  50    10  10  20  30  30  20  10  10
         5   5  10  25  25  10   5   5     0   0   0  20  20   0   0   0     5  -5 -10   0   0 -10  -5   5
         5  10  10 -20 -20  10  10   5     0   0   0   0   0   0   0   0""",
    chess.KNIGHT: """
       -50 -40 -30 -30 -30 -30 -40 -50   -40 -20   0   0   0   0 -20 -40   -30   0  10  15  15  10   0 -30
       -30   5  15  20  20  15   5 -30   -30   0  15  20  20  15   0 -30   -30   5  10  15  15  10   5 -30
       -40 -20   0   5   5   0 -20 -40   -50 -40 -30 -30 -30 -30 -40 -50""",
    chess.BISHOP: """
       -20 -10 -10 -10 -10 -10 -10 -20   -10   0   0   0   0   0   0 -10   -10   0   5  10  10   5   0 -10
       -10   5   5  10  10   5   5 -10   -10   0  10  10  10  10   0 -10   -10  10  10  10  10  10  10 -10
       -10   5   0   0   0   0   5 -10   -20 -10 -10 -10 -10 -10 -10 -20""",
    chess.ROOK: """
         0   0   0   0   0   0   0   0     5  10  10  10  10  10  10   5    -5   0   0   0   0   0   0  -5
        -5   0   0   0   0   0   0  -5    -5   0   0   0   0   0   0  -5    -5   0   0   0   0   0   0  -5
        -5   0   0   0   0   0   0  -5     0   0   0   5   5   0   0   0""",
    chess.QUEEN: """
       -20 -10 -10  -5  -5 -10 -10 -20   -10   0   0   0   0   0   0 -10   -10   0   5   5   5   5   0 -10
        -5   0   5   5   5   5   0  -5     0   0   5   5   5   5   0  -5   -10   5   5   5   5   5   0 -10
       -10   0   5   0   0   0   0 -10   -20 -10 -10  -5  -5 -10 -10 -20""",
    chess.KING: """
       -30 -40 -40 -50 -50 -40 -40 -30   -30 -40 -40 -50 -50 -40 -40 -30   -30 -40 -40 -50 -50 -40 -40 -30
       -30 -40 -40 -50 -50 -40 -40 -30   -20 -30 -30 -40 -40 -30 -30 -20   -10 -20 -20 -20 -20 -20 -20 -10
        20  20   0   0   0   0  20  20    20  30  10   0   0  10  30  20""",
}

_MATE = 1_000_000
"""Centipawns of a mate, less the plies to it."""

_CAPTURES = 6
"""Plies of captures that are followed after the search's depth."""


def _worths() -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """Worth of each piece on each square, of Black and of White."""
    sides: tuple[dict[int, list[int]], dict[int, list[int]]] = ({}, {})
    for piece, table in _TABLES.items():
        from_white = [VALUES[piece] + int(word) for word in table.split()]
        sides[chess.BLACK][piece] = from_white
        sides[chess.WHITE][piece] = [from_white[square ^ 56] for square in chess.SQUARES]
    return sides


_WORTH = _worths()


def best_moves(fen: str, *, lines: int = 5, depth: int = SEARCH_DEPTH) -> tuple[Line, ...]:
    """Return the best moves of a position, best first: the same on every machine.

    A search of depth 2 takes a core about 10 ms, one of depth 3 60 ms.

    Args:
        fen: FEN of the position; if its game is over, there are no lines.
        lines: Number of lines; fewer if there are fewer legal moves.
        depth: Search depth in plies, 1 to `MAX_DEPTH`; captures are followed further.

    Raises:
        UserError: not a FEN, or a position that cannot be played.
    """
    board = position(fen)
    score = balance(board)
    best: list[tuple[int, str]] = []
    for gained, move in _ordered(board, board.legal_moves):
        alpha = best[-1][0] if len(best) == lines else -2 * _MATE  # a move below the last line need not be exact
        board.push(move)
        found = -_search(board, -(score + gained), depth - 1, -2 * _MATE, -alpha, 1)
        board.pop()
        if found > alpha:
            best = sorted([*best, (found, move.uci())], key=lambda each: -each[0])[:lines]
    return tuple(Line(move, _pawns(found)) for found, move in best)


def balance(board: chess.Board) -> int:
    """Material and placement in centipawns, for the side to move."""
    total = 0
    for square, piece in board.piece_map().items():
        worth = _WORTH[piece.color][piece.piece_type][square]
        total += worth if piece.color == board.turn else -worth
    return total


def gain(board: chess.Board, move: chess.Move) -> int:
    """What a legal move adds to the balance of the side that makes it, in centipawns."""
    piece = board.piece_type_at(move.from_square)
    assert piece is not None
    own, other = _WORTH[board.turn], _WORTH[not board.turn]
    total = own[move.promotion or piece][move.to_square] - own[piece][move.from_square]
    captured = board.piece_type_at(move.to_square)
    if captured is not None:
        return total + other[captured][move.to_square]
    if piece == chess.PAWN and move.to_square == board.ep_square:
        return total + other[chess.PAWN][move.to_square ^ 8]
    if piece == chess.KING and abs(move.from_square - move.to_square) == 2:
        corner, beside = (7, -1) if move.to_square > move.from_square else (0, 1)
        rank = move.from_square & 56
        total += own[chess.ROOK][move.to_square + beside] - own[chess.ROOK][rank + corner]
    return total


def _ordered(
    board: chess.Board, moves: Iterator[chess.Move] | chess.LegalMoveGenerator
) -> list[tuple[int, chess.Move]]:
    """Moves with their gains, the largest first: a search is fast where good moves come first."""
    return sorted(((gain(board, move), move) for move in moves), key=lambda each: -each[0])


def _search(board: chess.Board, score: int, depth: int, alpha: int, beta: int, ply: int) -> int:
    """Value for the side to move within (alpha, beta); `score` is its balance."""
    if depth == 0:
        if not any(board.generate_legal_moves()):
            return ply - _MATE if board.is_check() else 0
        return 0 if _is_draw(board) else _captures(board, score, alpha, beta, _CAPTURES)
    moves = _ordered(board, board.legal_moves)
    if not moves:
        return ply - _MATE if board.is_check() else 0
    if _is_draw(board):
        return 0
    best = -2 * _MATE
    for gained, move in moves:
        board.push(move)
        best = max(best, -_search(board, -(score + gained), depth - 1, -beta, -max(alpha, best), ply + 1))
        board.pop()
        if best >= beta:
            break
    return best


def _captures(board: chess.Board, score: int, alpha: int, beta: int, plies: int) -> int:
    """Value after captures, each of which the side to move may decline."""
    best = score
    if best >= beta or plies == 0:
        return best
    for gained, move in _ordered(board, board.generate_legal_captures()):
        if score + gained <= alpha:  # the captures after it gain less
            break
        board.push(move)
        best = max(best, -_captures(board, -(score + gained), -beta, -max(alpha, best), plies - 1))
        board.pop()
        if best >= beta:
            break
    return best


def _is_draw(board: chess.Board) -> bool:
    return board.halfmove_clock >= 150 or (chess.popcount(board.occupied) <= 4 and board.is_insufficient_material())


def _pawns(found: int) -> float:
    plies = _MATE - abs(found)
    if plies >= 1000:
        return found / 100
    return math.copysign(MATE_PAWNS - (plies + 1) // 2 / 100, found)
