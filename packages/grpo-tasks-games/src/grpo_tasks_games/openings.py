"""Games that begin with some random moves."""

from __future__ import annotations

import random
from typing import TypeVar

from pydantic import Field

from grpo_sdk import Game
from grpo_tasks_games.style import StyledConfig

State = TypeVar("State")


class OpenedConfig(StyledConfig):
    """Options of a game that can begin with an opening.

    Attributes:
        openings: Largest number of random moves at the start of a game of the train split, each number with the same
            probability: self-play from the empty board soon repeats a few games and learns nothing of the others.
    """

    openings: int = Field(default=0, ge=0, le=8)


def after_opening(game: Game, start: State, seed: int, config: OpenedConfig, *, losable: int) -> State:
    """Return the start of a game after up to `openings` random moves, each number with the same probability.

    Rows of other splits than train begin at the start.

    Args:
        game: The game.
        start: Its first state.
        seed: Seed of the row.
        config: Options of the game.
        losable: Number of moves after which the next one may win: a scripted opponent's would end a game before the
            policy has moved, so that openings against one are shorter.
    """
    if config.split != "train":
        return start
    rng = random.Random(f"opening/{seed}")
    moves = rng.randint(0, config.openings if config.opponent == "self" else min(config.openings, losable - 1))
    state, made = start, 0
    while made < moves:
        state, made = game.apply(state, rng.choice(game.legal(state))), made + 1
        if game.outcome(state) is not None:
            state, made = start, 0  # an opening leaves something to play
    return state
