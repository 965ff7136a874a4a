"""Players for every game: demos of a weak player, and a scripted player that looks one move ahead."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from grpo_sdk import Game, Prompt
from grpo_tasks_games.style import StyledConfig

DEMOS = 65_536
"""Default number of demos: 1,000 steps of 64 examples, the default of `grpo warm-start`."""


def weak_demos(
    game: Game,
    config: StyledConfig,
    *,
    wrong: Callable[[Any, random.Random], Any],
    good: Callable[[Any, random.Random], Any],
) -> Iterator[tuple[Prompt, str]]:
    """Yield positions of random games, each with an illegal move (`demo_errors`), a good (`demo_skill`) or random one.

    Args:
        game: Game with `initial(seed, config)`, `observe(state, role, config)` and `write(action, state, config)`.
        config: Options of the game.
        wrong: `(state, rng)` -> an illegal action, or None if there is none.
        good: `(state, rng)` -> action of a player who is better than a random one.
    """
    rng = random.Random(f"demos/{config.seed}/{config.split}")
    for state in islice(_positions(game, config, rng), config.size or DEMOS):
        action = wrong(state, rng) if rng.random() < config.demo_errors else None
        if action is None:
            action = good(state, rng) if rng.random() < config.demo_skill else rng.choice(game.legal(state))
        yield game.observe(state, game.to_move(state), config), game.write(action, state, config)


def _positions(game: Game, config: StyledConfig, rng: random.Random) -> Iterator[Any]:
    while True:
        state = game.initial(rng.getrandbits(32), config)
        while game.outcome(state) is None:
            yield state
            state = game.apply(state, rng.choice(game.legal(state)))


def one_ply_moves(game: Game, state: Any) -> list[Any]:
    """Return the actions that win at once; else those after which the opponent cannot; else all."""
    actions, role = list(game.legal(state)), game.to_move(state)
    after = {action: game.apply(state, action) for action in actions}
    wins = [action for action in actions if _won(game, after[action], role)]
    safe = [action for action in actions if not _loses_at_once(game, after[action], role)]
    return wins or safe or actions


def _won(game: Game, state: Any, role: str) -> bool:
    returns = game.outcome(state)
    return returns is not None and returns[role] > 0


def _loses_at_once(game: Game, state: Any, role: str) -> bool:
    returns = game.outcome(state)
    if returns is not None:
        return returns[role] < 0
    other = game.to_move(state)
    return any(_won(game, game.apply(state, action), other) for action in game.legal(state))
