"""Tasks of evaluation/test_replay.py: one, and what a changed reward makes of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from grpo_core import Invalid, Opponent, Row, Task, reward
from grpo_core.rewards import diversity


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


before = Task("numbers", load, lambda row: f"{row.number} =", validate, (exact,))
after = replace(before, rewards=(near,))
compared = replace(before, rewards=(exact, diversity(0.5)))
opposed = replace(after, opponent=Opponent(prompt=lambda answer: str(answer)))
