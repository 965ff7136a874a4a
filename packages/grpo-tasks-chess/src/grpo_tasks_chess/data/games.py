"""Noisy games as a source of positions and moves; all randomness comes from the generator passed in."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from random import Random

import chess

from grpo_tasks_chess.formats import Line

MAX_PLIES = 300
"""Half-moves after which a game is stopped."""

CAPTURE_SHARE = 0.3
"""Probability that a light player captures if it can; with random moves alone, games would end with full boards."""

ENDGAME_PIECES = (1, 4)
"""Smallest and largest number of pieces besides the kings in an endgame."""

GUIDE_DEPTH, GUIDE_LINES, GUIDE_SPREAD_PAWNS = 3, 3, 0.3
"""Play of an engine: one of its three best moves at 2 ms, e times less often for each 0.3 pawns that it is worse."""

Choose = Callable[[chess.Board], chess.Move]
Analyse = Callable[[str, int, int], tuple[Line, ...]]
"""(FEN, lines, depth) -> the best moves."""


def endgame(random: Random, *, clock: int = 0) -> chess.Board:
    """Return a random valid position with few pieces, in which the game is not over.

    Args:
        random: Random generator.
        clock: Half-moves since the last capture or pawn move.
    """
    while True:
        board = chess.Board(None)
        pieces = [chess.Piece(chess.KING, chess.WHITE), chess.Piece(chess.KING, chess.BLACK)]
        for _ in range(random.randint(*ENDGAME_PIECES)):
            kind = random.choice((chess.PAWN, chess.PAWN, chess.KNIGHT, chess.BISHOP, chess.ROOK, chess.QUEEN))
            pieces.append(chess.Piece(kind, random.random() < 0.5))
        for piece, square in zip(pieces, random.sample(chess.SQUARES, len(pieces)), strict=True):
            board.set_piece_at(square, piece)
        board.turn = random.random() < 0.5
        board.halfmove_clock = clock
        board.fullmove_number = clock // 2 + random.randint(30, 60)
        if board.is_valid() and not board.is_game_over():
            return board


def light_player(random: Random) -> Choose:
    """Return a player of random moves that prefers captures and needs no engine."""

    def choose(board: chess.Board) -> chess.Move:
        captures = list(board.generate_legal_captures()) if random.random() < CAPTURE_SHARE else []
        return random.choice(captures or list(board.legal_moves))

    return choose


def guided_player(random: Random, analyse: Analyse, noise: float) -> Choose:
    """Return a player of an engine's best moves, better ones more often; with probability `noise` any legal move."""

    def choose(board: chess.Board) -> chess.Move:
        if random.random() < noise:
            return random.choice(list(board.legal_moves))
        lines = analyse(board.fen(), GUIDE_LINES, GUIDE_DEPTH)
        weights = [math.exp((line.evaluation - lines[0].evaluation) / GUIDE_SPREAD_PAWNS) for line in lines]
        return chess.Move.from_uci(random.choices([line.move for line in lines], weights)[0])

    return choose


def played(board: chess.Board, choose: Choose) -> Iterator[chess.Board]:
    """Yield the board before each move until the game is over or too long; callers must not change the board."""
    for _ in range(MAX_PLIES):
        if board.is_game_over():
            return
        yield board
        board.push(choose(board))
