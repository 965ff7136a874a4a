"""A small game and a task of two attempts, for tests."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace

from grpo_sdk import Game, GameConfig, Invalid, Row, Task, TaskConfig, reward


class HeapConfig(GameConfig):
    heap: int = 5


def initial(seed: int, config: HeapConfig) -> tuple[int, str]:
    return config.heap, "first"


def observe(state: tuple[int, str], role: str) -> str:
    return f"{role} sees {state[0]}:"


def parse(text: str, state: tuple[int, str]) -> int:
    if not text.strip().isdecimal():
        raise Invalid("no number")
    return int(text.strip()[:9])


def apply(state: tuple[int, str], action: int) -> tuple[int, str]:
    return state[0] - action, "second" if state[1] == "first" else "first"


def legal(state: tuple[int, str]) -> list[int]:
    return [taken for taken in (1, 2, 3) if taken <= state[0]]


def outcome(state: tuple[int, str]) -> dict[str, float] | None:
    heap, loser = state  # who cannot move has lost
    return None if heap else {role: -1.0 if role == loser else 1.0 for role in ("first", "second")}


def best(state: tuple[int, str]) -> int:
    return state[0] % 4 or 1


HEAP = Game(
    "heap", ("first", "second"), initial, lambda state: state[1], observe, parse, apply, legal, outcome,
    render=lambda state: "o" * state[0], write=lambda action: str(action), config=HeapConfig, best=best,
    players={"greedy": lambda state, rng: min(3, state[0]), "one": lambda state, rng: rng.choice([1])}, max_turns=20,
)  # fmt: skip
"""Take 1 to 3 from a heap; who takes the last one wins."""


class Guess(Row):
    secret: int


def guesses(config: TaskConfig) -> Iterable[Guess]:
    return [Guess(id=str(secret), secret=secret) for secret in random.Random(config.seed).sample(range(10), 4)]


def guessed(text: str) -> int:
    if not text.strip().isdecimal():
        raise Invalid("no digit")
    return int(text.strip()[:9])


@reward()
def right(answer: int, row: Guess) -> float:
    return float(answer == row.secret)


def hint(text: str, row: Guess, turn: int) -> str | None:
    try:
        answer = guessed(text)
    except Invalid:
        return f"\n{turn}: a digit, please:"
    return None if answer == row.secret else f"\n{turn}: {'higher' if row.secret > answer else 'lower'}:"


GUESS = Task(
    "guess", guesses, lambda row: "guess:", guessed, [right], respond=hint, max_turns=3,
    exempt={"split": "there are ten digits"},
)  # fmt: skip
"""Guess a digit, three times, with hints."""

CHAT_GUESS = replace(GUESS, name="chat_guess", prompt=lambda row: ({"role": "user", "content": "guess:"},))
"""The same with messages."""


class GuessConfig(TaskConfig):
    tries: int = 3


def guessed_all(text: str, texts: Sequence[str]) -> tuple[int, ...]:
    assert text == texts[-1]
    return tuple(guessed(each) for each in texts)


@reward()
def early(answer: tuple[int, ...], row: Guess) -> float:
    return 1.0 / len(answer) if answer[-1] == row.secret else 0.0


def remembered(texts: Sequence[str], row: Guess) -> str | None:
    return None if texts[-1] == str(row.secret) else f"\nnot {' or '.join(texts)}:"


MEMORY = Task(
    "memory", guesses, lambda row: "guess:", guessed_all, [early], config=GuessConfig, respond=remembered,
    max_turns=lambda config: config.tries, exempt={"split": "there are ten digits"},
)  # fmt: skip
"""Guess a digit in few turns; feedback and score depend on all completions."""
