"""Positions of `chess.policy` with the engine's labels; row i depends on the seed, i and the engine alone."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from random import Random
from typing import Any

import chess

from grpo_core.data import split_of
from grpo_tasks_chess.data.games import Analyse, endgame, guided_player, light_player, played
from grpo_tasks_chess.formats import MAX_CANDIDATES
from grpo_tasks_chess.records import position_key

POSITIONS_PER_GAME = 8
"""Taken from one game unless asked otherwise. Playing one costs as much as labelling tens of its positions to a small
depth, but those of one game are alike."""

SHORTEST_GAME = 8
"""Positions of a game, at least; one that is mate in a few moves is played again."""

ENDGAME_SHARE = 0.2
"""Games that begin with few pieces: others rarely get so far."""

LIGHT_SHARE = 0.15
"""Games that are played at random: positions in which nothing is in balance."""

NOISES = (0.0, 0.05, 0.1, 0.3)
"""Shares of random moves beside an engine's: from sound games to wild ones."""


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
    """Rows `start` to `stop` (not included): `{index, fen, moves, evaluations, best}`, the moves in random order.

    Args:
        seed: Of everything that is random.
        start: Number of the first row.
        stop: Number after the last.
        analyse: Labels positions and plays along.
        depth: Plies that labels are searched to.
        split: Leave out the rows of other splits.
        per_game: Numbers of one game; a game with fewer positions leaves the last of its numbers out.
    """
    for index in range(start, stop):
        game, number = divmod(index, per_game)
        fens = _positions(seed, game, per_game, analyse)
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


@lru_cache(maxsize=2)  # rows of one game are asked for one after the other
def _positions(seed: int, game: int, wanted: int, analyse: Analyse) -> tuple[str, ...]:
    """As many positions of one game, or all of a shorter one, in random order."""
    attempt = 0
    while True:
        random = Random(f"policy/{seed}/{game}/{attempt}")
        board = endgame(random) if random.random() < ENDGAME_SHARE else chess.Board()
        is_light = random.random() < LIGHT_SHARE
        player = light_player(random) if is_light else guided_player(random, analyse, random.choice(NOISES))
        fens = [each.fen() for each in played(board, player)]
        if len(fens) >= SHORTEST_GAME:
            return tuple(random.sample(fens, min(wanted, len(fens))))
        attempt += 1
