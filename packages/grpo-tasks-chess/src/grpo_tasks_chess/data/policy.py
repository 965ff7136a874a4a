"""Generating positions with engine labels for `chess.policy`; row i depends on seed, split, i and the engine alone."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from random import Random
from typing import Any

import chess

from grpo_sdk.data import split_of
from grpo_tasks_chess.data.games import Analyse, endgame, guided_player, light_player, played
from grpo_tasks_chess.formats import MAX_CANDIDATES
from grpo_tasks_chess.records import position_key
from grpo_tasks_chess.search import SEARCH, best_moves

POSITIONS_PER_GAME = 8
"""Default number of positions per game. A game costs as much as labelling tens of its positions to a small depth, but
positions of one game are alike."""

SHORTEST_GAME = 8
"""Smallest number of positions of a game; a shorter one is played again."""

ENDGAME_SHARE = 0.2
"""Share of games that start with few pieces, which other games rarely reach."""

LABEL_TIMEOUT_S = 600.0
"""Time limit of one position; depth 20 takes Stockfish 15 seconds."""

LIGHT_SHARE = 0.15
"""Share of games of random moves, for unbalanced positions."""

NOISES = (0.0, 0.05, 0.1, 0.3)
"""Probabilities of a random move in place of an engine's: from sound games to wild ones."""


def policy_records(
    seed: int,
    start: int,
    stop: int,
    *,
    analyse: Analyse,
    depth: int,
    split: str | None,
    per_game: int = POSITIONS_PER_GAME,
) -> Iterator[dict[str, Any]]:
    """Yield rows `start` to `stop` (exclusive): `{index, fen, moves, evaluations, best}`, the moves in random order.

    Args:
        seed: Random seed.
        start: Number of the first row.
        stop: Number after the last row.
        analyse: Engine that labels positions and plays games.
        depth: Search depth of the labels, in plies.
        split: Yield only rows of this split, from games of its own: neighbours in a game have nearly the same moves.
            None yields rows of all.
        per_game: Row numbers per game; a game with fewer positions leaves its last numbers out.
    """
    games = f"{seed}" if split is None else f"{seed}/{split}"
    for index in range(start, stop):
        game, number = divmod(index, per_game)
        fens = _positions(games, game, per_game, analyse)
        if number >= len(fens):
            continue
        fen = fens[number]
        if split is not None and split_of(position_key(fen)) != split:
            continue
        lines = analyse(fen, MAX_CANDIDATES, depth)
        best = lines[0].move
        shuffled = Random(f"policy/{seed}/{index}/order").sample(lines, len(lines))
        yield {
            "index": index,
            "fen": fen,
            "moves": [line.move for line in shuffled],
            "evaluations": [line.evaluation for line in shuffled],
            "best": best,
        }


@lru_cache(maxsize=2)  # the rows of a game are made one after the other
def _positions(key: str, game: int, wanted: int, analyse: Analyse) -> tuple[str, ...]:
    """Return up to `wanted` positions of a game in random order; the games of a key are its own."""
    attempt = 0
    while True:
        random = Random(f"policy/{key}/{game}/{attempt}")
        board = endgame(random) if random.random() < ENDGAME_SHARE else chess.Board()
        is_light = random.random() < LIGHT_SHARE
        player = light_player(random) if is_light else guided_player(random, analyse, random.choice(NOISES))
        fens = [each.fen() for each in played(board, player)]
        if len(fens) >= SHORTEST_GAME:
            return tuple(random.sample(fens, min(wanted, len(fens))))
        attempt += 1


def labeller(engine: str, most: int) -> Analyse:
    """Return what labels positions and guides games.

    Args:
        engine: Program of the engine; or `search`, the built-in search.
        most: Depth of the labels. The search is never deeper: an engine guides a game in a fraction of its time.
    """
    if engine == SEARCH:
        return lambda fen, multipv, depth: best_moves(fen, lines=multipv, depth=min(depth, most))
    from grpo_tasks_chess.engine.pool import EnginePool

    pool = EnginePool(engine, size=1)
    return lambda fen, multipv, depth: pool.analyse(fen, multipv=multipv, depth=depth, timeout_s=LABEL_TIMEOUT_S)
