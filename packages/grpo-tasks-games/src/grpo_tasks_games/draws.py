"""Exact probabilities of a scripted player's moves, from every outcome of its draws."""

from __future__ import annotations

import math
import random
from collections.abc import MutableSequence, Sequence
from typing import Any, NoReturn

from grpo_core import Rules, UserError

MAX_OUTCOMES = 10_000
"""Largest number of outcomes of the draws of one move."""

MAX_DRAWS = 1_000
"""Largest number of draws for one move."""


class _Planned(random.Random):
    """A generator whose draws come out as planned, and at the first possibility beyond the plan.

    Args:
        plan: Place of the outcome of each draw among its possible ones.
    """

    def __init__(self, plan: Sequence[int]) -> None:
        super().__init__(0)
        self._plan = plan
        self.made: list[tuple[int, int]] = []
        """Outcome of every draw so far, and the number of possible ones."""

    def choice(self, seq: Any) -> Any:
        """Return the planned element."""
        if len(self.made) == MAX_DRAWS:
            raise _Uncountable
        place = self._plan[len(self.made)] if len(self.made) < len(self._plan) else 0
        element = seq[place]  # an empty sequence raises, as it does in play
        self.made.append((place, len(seq)))
        return element

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        """Return the planned number of a range."""
        return int(self.choice(range(start) if stop is None else range(start, stop, step)))

    def randint(self, a: int, b: int) -> int:
        """Return the planned number from a to b."""
        return self.randrange(a, b + 1)

    def shuffle(self, x: MutableSequence[Any]) -> None:
        """Shuffle in place, by one draw for each element but the first."""
        for last in range(len(x) - 1, 0, -1):
            other = self.randrange(last + 1)
            x[last], x[other] = x[other], x[last]

    def random(self) -> NoReturn:
        """Refuse: its outcomes cannot be listed."""
        raise _Uncountable

    def getrandbits(self, k: int) -> NoReturn:
        """Refuse, as `random` does; it is what every other method draws with."""
        raise _Uncountable


class _Uncountable(BaseException):
    """Draws whose outcomes cannot be listed; no player's `except Exception` keeps it."""


def move_probabilities(rules: Rules, player: str, state: Any) -> list[float]:
    """Return the probability of each legal action of a scripted player, in the game's order.

    Args:
        rules: The game.
        player: Name of the player.
        state: An undecided state.

    Raises:
        UserError: the player draws in another way than by `choice`, `randrange`, `randint` and `shuffle`, more than
            `MAX_DRAWS` times, or with more than `MAX_OUTCOMES` outcomes.
        ValueError: the player's action is not legal, which is a bug of the game.
    """
    probabilities = [0.0] * len(rules.legal(state))
    plan: list[int] = []
    for _ in range(MAX_OUTCOMES):
        draws = _Planned(plan)
        try:
            place = rules.choose(player, state, draws)
        except _Uncountable:
            raise UserError(
                f"{player}: its moves have no probabilities that are known, as it draws otherwise than by rng.choice, "
                f"rng.randrange, rng.randint and rng.shuffle, or more than {MAX_DRAWS:,} times. `grpo eval` measures "
                "play against it."
            ) from None
        probabilities[place] += 1 / math.prod(possible for _, possible in draws.made)
        following = _next_plan(draws.made)
        if following is None:
            return probabilities
        plan = following
    raise UserError(f"{player}: the draws of one of its moves have more than {MAX_OUTCOMES:,} outcomes.")


def _next_plan(made: Sequence[tuple[int, int]]) -> list[int] | None:
    """Return the plan after this one, in lexicographic order; None after the last one."""
    for last in range(len(made) - 1, -1, -1):
        place, possible = made[last]
        if place + 1 < possible:
            return [*(place for place, _ in made[:last]), place + 1]
    return None
