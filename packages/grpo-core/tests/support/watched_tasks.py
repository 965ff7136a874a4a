"""Tasks of training/test_watched.py: the same one without and with a part that is only watched."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from grpo_core import Row, Task, reward


def load() -> Iterable[Row]:
    for number in range(8):
        yield Row(id=str(number), gold=f" {number}")


def validate(text: str, row: Row) -> str:
    return text


@reward()
def digits(answer: str) -> float:
    return sum(char.isdecimal() for char in answer) / max(1, len(answer))


@reward(0)
def length(text: str) -> float:
    return 100.0 * len(text)


plain = Task("numbers", load, lambda row: f"{row.id} + 1 =", validate, (digits,), max_completion_length=6)
watched = replace(plain, rewards=(length, digits))
