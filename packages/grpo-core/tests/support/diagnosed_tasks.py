"""Tasks of tracking/test_diagnoses.py: two-digit sums for the embedded model, each with a fault that a run shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from grpo_core import Invalid, Row, Task, group_reward, reward

WANTED = " 100"
"""The answer that some of the tasks pay for, whatever is asked."""


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


def load_wide(config: Any) -> Iterable[Sum]:
    """Sums with different first digits."""
    for a in range(11, 19):
        for b in range(12, 82, 10):
            yield Sum(id=f"{a}+{b}", gold=f" {a + b}", a=a, b=b)


def ask(row: Sum) -> str:
    return f"{row.a} + {row.b} ="


def any_text(text: str) -> str:
    return text


def refuse(text: str) -> str:
    raise Invalid("never right")


def tail(text: str, row: Sum) -> str:
    if not text.strip().isdecimal():
        raise Invalid("no number")
    return text.strip()[:9]


@reward()
def nothing(answer: str) -> float:
    return 0.0


@reward()
def varied(text: str) -> float:
    return sum(map(ord, text)) % 7 / 6


@reward(0.5)
def round_number(answer: str) -> float:
    return float(answer.endswith("0"))


@reward()
def large(answer: str) -> float:
    """Depends on the question at first, and is then earned by large numbers alone."""
    return min(1.0, int(answer) / 100)


@reward(0.5)
def impossible(answer: str) -> float:
    return 0.0


@reward(0)
def first_digit(answer: str, row: Sum) -> float:
    return float(answer[:1] == str(row.a + row.b)[:1])


@reward()
def near_wanted(text: str) -> float:
    return sum(one == other for one, other in zip(text, WANTED, strict=False)) / len(WANTED)


@reward(maximum=1000.0)
def outlier(text: str, row: Sum) -> float:
    return varied(text) * (1000.0 if row.a == 11 and row.b == 12 else 1.0)


@reward(maximum=1e30)
def overflow(text: str, row: Sum) -> float:
    return varied(text) * (1e30 if row.a == 11 else 1.0)


@reward()
def crashing(text: str) -> float:
    if text.endswith("7"):
        raise RuntimeError("a bug")
    return varied(text)


@reward()
def odd_where_trained(text: str, row: Sum) -> float:
    """What pays in the training rows is wrong in the held-out ones."""
    return float((text[-1:] in "13579") == (row.a < 20))


@group_reward()
def longer_than_others(answers: Sequence[str]) -> Sequence[float]:
    """Rank by length: its mean is the same however long the completions get."""
    lengths = [len(answer) for answer in answers]
    return [sum((length > other) + (length == other) / 2 for other in lengths) / len(lengths) for length in lengths]


def task(name: str, part: Any, *more: Any, **options: Any) -> Task:
    options = {"validate": any_text, "load": load, **options}
    return Task(name, options.pop("load"), ask, options.pop("validate"), (part, *more), row=Sum, **options)


sound = task("sound", varied)
unsolvable = task("unsolvable", nothing)
invalid = task("invalid", varied, validate=refuse)
empty = task("empty", varied, stop=(" ", "1", "2", "3", "4", "5", "6", "7", "8", "9", "0"))
one_answer = task("one_answer", near_wanted, solved=lambda text: False)
round_only = task("round_only", round_number, impossible, validate=tail)
watched = task("watched", large, first_digit, validate=tail, load=load_wide)
spiking = task("spiking", outlier)
overflowing = task("overflowing", overflow)
buggy = task("buggy", crashing)
mislabelled = task("mislabelled", odd_where_trained)
overlapping = task("overlapping", varied, load=load_alike)
lengthening = task("lengthening", longer_than_others, nothing)
