"""Tasks of tracking/test_diagnoses.py: two-digit sums for the embedded model, each with a fault that a run shows."""

from collections.abc import Iterable
from typing import Any

from grpo_sdk import Row, Task, reward


class Sum(Row):
    a: int
    b: int


def load(config: Any) -> Iterable[Sum]:
    first = {"train": 11, "validation": 40, "test": 50}[config.split]
    for a in range(first, first + 8):
        for b in range(12, 20):
            yield Sum(id=f"{a}+{b}", gold=f" {a + b}", a=a, b=b)


def load_alike(config: Any) -> Iterable[Sum]:
    """Half of the held-out rows are training rows."""
    for a in range(11, 19) if config.split == "train" else range(15, 23):
        yield Sum(id=f"{config.split} {a}", gold=f" {a + 20}", a=a, b=20)


def ask(row: Sum) -> str:
    return f"{row.a} + {row.b} ="


def any_text(text: str) -> str:
    return text


@reward()
def nothing(answer: str) -> float:
    return 0.0


@reward()
def varied(text: str) -> float:
    return sum(map(ord, text)) % 7 / 6


def task(name: str, part: Any, *more: Any, **options: Any) -> Task:
    options = {"validate": any_text, "load": load, **options}
    return Task(name, options.pop("load"), ask, options.pop("validate"), (part, *more), row=Sum, **options)


sound = task("sound", varied, exempt={"gold": "its reward has nothing to do with sums"})
unsolvable = task("unsolvable", nothing)
empty = task("empty", varied, stop=(" ", "1", "2", "3", "4", "5", "6", "7", "8", "9", "0"))
overlapping = task("overlapping", varied, load=load_alike)
