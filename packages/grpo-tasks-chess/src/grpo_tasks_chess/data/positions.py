"""Positions without end, from noisy games, without a file or an engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from random import Random

import chess

from grpo_sdk.data import split_of
from grpo_tasks_chess.data.games import Choose, endgame, light_player, played
from grpo_tasks_chess.records import position_key_of
from grpo_tasks_chess.search import VALUES, gain

ENDGAME_SHARE = 0.25
"""Share of games that start with few pieces."""

CAREFUL_SHARE = 0.6
"""Share of players that see captures one move ahead; the others move at random."""

NOISES = (0.0, 0.1, 0.3)
"""Probabilities of a random move of a careful player."""

JITTER = 60.0
"""Centipawns by which a careful player misjudges a move at most, so that its games differ."""

STRIDE = 4
"""Of so many positions of a game one is taken, on average: neighbours are alike."""

EXAMINED: Mapping[str, float] = {"train": 1 / STRIDE, "validation": 1.0, "test": 1.0}
"""Share of a game's positions that are looked at; the splits other than `train` have few."""


def positions(seed: int, split: str, *, label: str, in_check: float = 0.0) -> Iterator[chess.Board]:
    """Yield positions of a split without end, in which the game is not over; the i-th depends on the arguments and i.

    The split of a position depends on its hash, so splits are disjoint for every pair of seeds. Each split has games of
    its own: neighbours in a game have nearly the same moves.

    Args:
        seed: Random seed.
        split: train, validation or test.
        label: Name of the task: tasks with the same seed have different positions.
        in_check: Share of positions after a checking move that the games did not have, in which one side must answer
            it; of the others, one in twenty is in check, too.
    """
    boards = visited(seed, split, label)
    if in_check > 0:
        boards = _checked(boards, in_check, Random(f"{label}/{seed}/{split}/checks"))
    return (board for board in boards if split_of(position_key_of(board)) == split)


def _checked(boards: Iterator[chess.Board], share: float, random: Random) -> Iterator[chess.Board]:
    """Yield a share of positions after a checking move, and the others as they are."""
    must_check = random.random() < share
    for board in boards:
        if must_check:
            after = _after_check(board, random)
            if after is None:
                continue  # the next position has to do
            board = after
        yield board
        must_check = random.random() < share


def _after_check(board: chess.Board, random: Random) -> chess.Board | None:
    """The position after a random move that gives check and does not end the game, or None."""
    checks = [move for move in board.legal_moves if board.gives_check(move)]
    if not checks:
        return None
    after = board.copy(stack=False)
    after.push(random.choice(checks))
    return None if after.is_game_over() else after


def visited(seed: int, split: str, label: str) -> Iterator[chess.Board]:
    """Yield positions of games that are played for a split, most of which are in another one by their hash."""
    for number in count():
        random = Random(f"{label}/{seed}/{split}/{number}")
        board = endgame(random) if random.random() < ENDGAME_SHARE else chess.Board()
        player = (
            careful_player(random, random.choice(NOISES)) if random.random() < CAREFUL_SHARE else light_player(random)
        )
        for each in played(board, player):
            if random.random() < EXAMINED[split]:
                yield each


def careful_player(random: Random, noise: float) -> Choose:
    """Return a player that takes what is free and leaves nothing to be taken, as far as one move shows.

    Args:
        random: Random generator.
        noise: Probability of any legal move instead.
    """

    def choose(board: chess.Board) -> chess.Move:
        moves = list(board.legal_moves)
        if random.random() < noise:
            return random.choice(moves)
        return max(moves, key=lambda move: _promise(board, move) + random.random() * JITTER)

    return choose


def _promise(board: chess.Board, move: chess.Move) -> int:
    """What a move gains, less the piece if it can be taken, in centipawns."""
    promise = gain(board, move)
    if board.is_attacked_by(not board.turn, move.to_square):
        piece = move.promotion or board.piece_type_at(move.from_square)
        defenders = len(board.attackers(board.turn, move.to_square)) - (piece != chess.PAWN)
        attacker = min(
            (VALUES[board.piece_type_at(square) or chess.KING] or 10_000)
            for square in board.attackers(not board.turn, move.to_square)
        )
        worth = VALUES[piece or chess.PAWN]
        promise -= worth if defenders <= 0 else max(0, worth - attacker)
    return promise
