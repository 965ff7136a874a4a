"""Tasks of test_scoring*.py: the completion says how its reward misbehaves."""

import ctypes
import os
import re
import sys
import time
from collections.abc import Iterable
from dataclasses import replace

from grpo_sdk import Invalid, Opponent, Row, Task, TaskConfig, reward
from grpo_sdk.rewards import graduated, weighted_sum


class Sum(Row):
    a: int
    b: int


class Sums(TaskConfig):
    scale: float = 1.0


def load(config: Sums) -> Iterable[Sum]:
    for a in range(5):
        yield Sum(id=f"{a}+{a}", gold=str(2 * a), a=a, b=a)


def prompt(row: Sum) -> str:
    return f"{row.a} + {row.b} ="


def validate(text: str, row: Sum) -> int:
    if text == "spin":
        while True:
            pass
    if not re.fullmatch(r"-?[0-9]{1,18}", text.strip()):
        raise Invalid(f"not a number: {text[:20]!r}")
    return int(text)


@reward(weight=2.0)
def right(answer: int, row: Sum, config: Sums) -> float:
    if answer == 404:
        raise LookupError(f"no such number: {answer}")
    if answer == 500:
        os._exit(1)
    if answer == 501:
        ctypes.string_at(0)
    if answer == 502:
        "x".join(["x" * (1 << 30)] * 64)
    if answer > 10**17:
        time.sleep(answer / 10**18)
    return config.scale * float(answer == row.a + row.b)


@reward(weight=-1.0)
def without_torch(text: str) -> float:
    return float("torch" in sys.modules)


sums = Task("sums", load, prompt, validate, [right, without_torch], config=Sums, timeout_s=20.0)


hurried = replace(sums, name="hurried", timeout_s=0.5)


@reward(weight=0.1)
def decimal(text: str) -> float:
    return float(text.isdecimal())


bounded = Task(
    "bounded", load, prompt, validate, [right, decimal, without_torch], config=Sums, compose=weighted_sum(invalid=-0.5),
    timeout_s=20.0, on_timeout="fail",
)  # fmt: skip

laddered = Task("laddered", load, prompt, validate, [right], config=Sums, compose=graduated())


def asks(answer: int, row: Sum) -> str:
    if answer == 600:
        while True:
            pass
    return f"what is {answer} \udcff?"


@reward()
def agreed(answer: int, predictions: tuple[str, ...]) -> float:
    return sum(prediction == str(answer) for prediction in predictions) / max(1, len(predictions))


guess = Task("guess", load, prompt, validate, [agreed], config=Sums, opponent=Opponent(prompt=asks), timeout_s=20.0)
bounded_guess = replace(guess, name="bounded_guess", on_timeout="fail")
