"""Tasks of evaluation/test_replay.py: one, and what a changed reward makes of it."""

from collections.abc import Iterable
from dataclasses import replace

from small_games import GUESS, HEAP

from grpo_sdk import Invalid, Opponent, Row, Task, reward
from grpo_sdk.rewards import diversity


class Number(Row):
    number: int


def load() -> Iterable[Number]:
    for number in range(4):
        yield Number(id=f"r{number}", gold=str(number), number=number)


def validate(text: str, row: Number) -> int:
    if not text.isdecimal():
        raise Invalid("no number")
    return int(text)


@reward()
def exact(answer: int, row: Number) -> float:
    return float(answer == row.number)


@reward()
def near(answer: int, row: Number) -> float:
    if answer == 666:
        raise RuntimeError("crashed")
    return float(abs(answer - row.number) <= 1)


@reward(-0.5)
def padded(text: str) -> float:
    return float(text.startswith("0"))


before = Task("numbers", load, lambda row: f"{row.number} =", validate, (exact,))
after = replace(before, rewards=(near,))
compared = replace(before, rewards=(exact, diversity(0.5)))
penalised = replace(before, rewards=(exact, padded))


@reward()
def fooled(answer: int, predictions: tuple[str, ...]) -> float:
    """Share of the opponent's answers that are wrong."""
    return sum(text != str(answer) for text in predictions) / len(predictions)


@reward()
def unanimous(predictions: tuple[str, ...]) -> float:
    return float(len(set(predictions)) == 1)


def even(text: str, row: Number) -> int:
    if validate(text, row) % 2:
        raise Invalid("odd")
    return int(text)


opposed = replace(before, rewards=(fooled,), opponent=Opponent(prompt=lambda answer: str(answer), samples=2))
opposed_strictly = replace(opposed, validate=even)
opposed_after = replace(opposed, rewards=(unanimous,))


@reward()
def secret_or_less(answer: int, row: Row) -> float:
    return float(answer <= getattr(row, "secret", 0))


guess, heap = GUESS, HEAP
guess_after = replace(GUESS, rewards=(secret_or_less,))


def last_one_loses(state: tuple[int, str]) -> dict[str, float] | None:
    won = HEAP.outcome(state)
    return won and {role: -value for role, value in won.items()}


heap_after = replace(HEAP, outcome=last_one_loses)
