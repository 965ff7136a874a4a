"""Generating moves from noisy games for `chess.environment`, without a file or an engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count, islice
from random import Random
from types import MappingProxyType

import chess

from grpo_sdk.data import split_of
from grpo_tasks_chess.data.environment import illegal_move, kind_of
from grpo_tasks_chess.data.games import endgame, light_player, played
from grpo_tasks_chess.environment.rows import EnvironmentRow, row_of
from grpo_tasks_chess.formats import MAX_HISTORY, Transition
from grpo_tasks_chess.records import position_key_of
from grpo_tasks_chess.rules import play

ENDGAME_SHARE = 0.3
"""Share of games that start with few pieces; in others, promotions and draws are rare."""

PLIES = (4, 160)
"""Shortest and longest game in half-moves; random games of full length are mostly long endings."""

MAX_CLOCK = 149
"""Largest number of half-moves without capture or pawn move at the start of an endgame; 150 end a game."""

EXAMINED_SHARES: Mapping[str, float] = MappingProxyType({"train": 0.3, "validation": 1.0, "test": 1.0})
"""Share of a split's positions that are examined: neighbours in a game are alike, and the small splits have few."""

FEW_PIECES = 6
"""Positions with more pieces are not searched for moves that end in a draw, which are very rare there."""

TAKEN: Mapping[str, float] = MappingProxyType(
    {"ordinary": 0.16, "illegal": 0.04, "castling": 0.25, "promotion": 0.6, "insufficient_material": 0.5}
)
"""Probability of taking a move of a kind, 1 for kinds not listed. Of a thousand rows, about 130 are illegal, 40
promotions, 33 mates, 27 draws, 23 castling, 10 en passant and the others ordinary."""


def generated_rows(seed: int, split: str) -> Iterator[EnvironmentRow]:
    """Yield rows without end; the i-th one is a pure function of seed, split and i.

    The split of a row depends on the hash of its position, so splits are disjoint for every pair of seeds. Each split
    has games of its own.
    """
    for number in count():
        yield from _rows_of_game(Random(f"chess.environment/{seed}/{split}/{number}"), split)


def _rows_of_game(random: Random, split: str) -> list[EnvironmentRow]:
    """Return a few moves of a game, from positions of this split, in random order."""
    is_endgame = random.random() < ENDGAME_SHARE
    board = endgame(random, clock=random.randint(0, MAX_CLOCK)) if is_endgame else chess.Board()
    rows = []
    for position in islice(played(board, light_player(random)), random.randint(*PLIES)):
        if random.random() < EXAMINED_SHARES[split] and split_of(position_key_of(position)) == split:
            history = [each.uci() for each in position.move_stack[-(MAX_HISTORY - 1) :]]
            for kind, move in _moves(position, random).items():
                if random.random() < TAKEN.get(kind, 1.0):
                    transition = Transition(position.fen(), move, (*history, move))
                    rows.append(row_of(transition, play(transition.fen, transition.move, transition.history)))
    random.shuffle(rows)
    return rows


def _moves(board: chess.Board, random: Random) -> dict[str, str]:
    """Return moves of a position by kind: an ordinary one, an illegal one, and one of each rare kind, if possible."""
    moves = list(board.legal_moves)
    random.shuffle(moves)
    may_draw = chess.popcount(board.occupied) <= FEW_PIECES or board.halfmove_clock >= MAX_CLOCK
    by_kind: dict[str, str] = {}
    for number, move in enumerate(moves):
        is_special = move.promotion or board.is_castling(move) or board.is_en_passant(move)
        if number == 0 or is_special or may_draw or board.gives_check(move):
            by_kind.setdefault(kind_of(board, move), move.uci())
    by_kind.pop("", None)
    illegal = illegal_move(board, random)
    return {**by_kind, "illegal": illegal} if illegal else by_kind
