"""`games.nim`: take objects from one heap; taking the last one wins, or loses in misère play (Bouton 1901)."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import xor
from string import ascii_uppercase

from pydantic import Field, field_validator

from grpo_sdk import Game, Invalid, Prompt
from grpo_sdk.data import CommaSeparated
from grpo_tasks_games.players import weak_demos
from grpo_tasks_games.style import COMPLETION_TOKENS, ROLES, STOP, StyledConfig, ask, read_move, reply

MAX_HEAPS = 9
MAX_OBJECTS = 40
"""Objects in all heaps together, which is also the longest game in moves."""

Move = tuple[int, int]
"""Index of a heap, and the number of objects taken."""


class NimConfig(StyledConfig):
    """Options of `games.nim`.

    Attributes:
        heaps: Sizes of the heaps, as in `3,4,5`.
        drawn: Draw the size of each heap from 1 to its maximum, so that starts differ.
        misere: Taking the last object loses.
    """

    heaps: CommaSeparated[int] = Field(default=(3, 4, 5), min_length=1, max_length=MAX_HEAPS)
    drawn: bool = False
    misere: bool = False

    @field_validator("heaps")
    @classmethod
    def _in_bounds(cls, heaps: tuple[int, ...]) -> tuple[int, ...]:
        if min(heaps) < 1 or sum(heaps) > MAX_OBJECTS:
            raise ValueError(f"every heap needs an object, and all together may have {MAX_OBJECTS}")
        return heaps


@dataclass(frozen=True, slots=True)
class Heaps:
    """A position.

    Attributes:
        sizes: Objects left in each heap.
        misere: Whether taking the last object loses.
        moves: Moves made so far; the first player moves after an even number.
    """

    sizes: tuple[int, ...]
    misere: bool
    moves: int = 0


def initial(seed: int, config: NimConfig) -> Heaps:
    """Return the configured heaps, or heaps drawn by the seed."""
    rng = random.Random(seed)
    sizes = tuple(rng.randint(1, most) for most in config.heaps) if config.drawn else config.heaps
    return Heaps(sizes, config.misere)


def to_move(heaps: Heaps) -> str:
    """Return the role to move; the two take turns."""
    return ROLES[heaps.moves % 2]


def legal(heaps: Heaps) -> list[Move]:
    """Return all moves: one object or more of one heap."""
    return [(heap, count) for heap, size in enumerate(heaps.sizes) for count in range(1, size + 1)]


def apply(heaps: Heaps, move: Move) -> Heaps:
    """Take objects from a heap."""
    heap, count = move
    left = (*heaps.sizes[:heap], heaps.sizes[heap] - count, *heaps.sizes[heap + 1 :])
    return replace(heaps, sizes=left, moves=heaps.moves + 1)


def outcome(heaps: Heaps) -> Mapping[str, float] | None:
    """Return ±1 when all objects are taken."""
    if any(heaps.sizes):
        return None
    winner = heaps.moves % 2 if heaps.misere else (heaps.moves + 1) % 2
    return {role: 1.0 if seat == winner else -1.0 for seat, role in enumerate(ROLES)}


def render(heaps: Heaps) -> str:
    """Return the heaps, one per line."""
    return "\n".join(
        f"{name}: {size:2} {'|' * size}".rstrip() for name, size in zip(ascii_uppercase, heaps.sizes, strict=False)
    )


def observe(heaps: Heaps, role: str, config: NimConfig) -> Prompt:
    """Return the prompt: the rule of the last object, the heaps, and the form of the answer."""
    sample = _text(legal(heaps)[0])
    goal = "loses" if heaps.misere else "wins"
    named = " ".join(f"{name}{size}" for name, size in zip(ascii_uppercase, heaps.sizes, strict=False))
    return ask(
        f"You are the {role} player in a game of nim. A move takes one or more objects from one heap; "
        f"who takes the last object of all {goal}.\n\n{render(heaps)}\n\n"
        f"A move is the heap's letter and how many you take: {sample} takes {sample[1:]} from heap {sample[0]}.",
        f"nim{' misere' if heaps.misere else ''} {named}",
        slot="move",
        sample=sample,
        thought=_thought(sample),
        style=config.style,
    )


def _text(move: Move) -> str:
    heap, count = move
    return f"{ascii_uppercase[heap]}{count}"


def _thought(move: str) -> str:
    return f"I take {move[1:]} from heap {move[0]}."


def parse(text: str, heaps: Heaps) -> Move:
    """Read the move of `<answer>[B2]</answer>`; brackets and tag may be left out."""
    found = read_move(text, r"([a-z])\s?([0-9]{1,4})")
    heap, count = ascii_uppercase.index(found[1].upper()), int(found[2])
    if heap >= len(heaps.sizes):
        raise Invalid(f"there is no heap {ascii_uppercase[heap]}")
    if not 1 <= count <= heaps.sizes[heap]:
        raise Invalid(f"{count} cannot be taken from heap {ascii_uppercase[heap]}, which has {heaps.sizes[heap]}")
    return heap, count


def write(move: Move, heaps: Heaps, config: NimConfig) -> str:
    """Return the completion that makes a move."""
    return reply(_text(move), _thought(_text(move)), config.style)


def wins(heaps: Heaps) -> bool:
    """Whether the player to move wins with perfect play: the nim-sum is not 0.

    In misère play this is reversed once no heap has more than one object.
    """
    nim_sum = reduce(xor, heaps.sizes, 0)
    return (nim_sum == 0) if heaps.misere and max(heaps.sizes) <= 1 else nim_sum != 0


def best(heaps: Heaps) -> Move:
    """Return the first move that leaves a lost position; if there is none, one object of the largest heap."""
    for move in legal(heaps):
        if not wins(apply(heaps, move)):
            return move
    return heaps.sizes.index(max(heaps.sizes)), 1


def too_many(heaps: Heaps, rng: random.Random) -> Move:
    """Return a move that takes more than a heap has."""
    heap = rng.randrange(len(heaps.sizes))
    return heap, heaps.sizes[heap] + rng.randint(1, 3)


def demos(config: NimConfig) -> Iterator[tuple[Prompt, str]]:
    """Yield random moves, some of which take too many objects, some of `best`."""
    return weak_demos(GAME, config, wrong=too_many, good=lambda heaps, rng: best(heaps))


GAME = Game(
    name="nim",
    roles=ROLES,
    initial=initial,
    to_move=to_move,
    observe=observe,
    parse=parse,
    apply=apply,
    legal=legal,
    outcome=outcome,
    render=render,
    write=write,
    config=NimConfig,
    best=best,
    max_turns=MAX_OBJECTS,
    version="1",
    stop=STOP,
    max_completion_length=COMPLETION_TOKENS,
    demos=demos,
)
"""Returns: ±1."""
