"""Tasks of training/test_watched.py: the same one without and with a part that is only watched."""

from collections.abc import Iterable
from dataclasses import replace

from grpo_sdk import Row, Task, reward


def load() -> Iterable[Row]:
    for number in range(8):
        yield Row(id=str(number), gold=f" {number}")


def validate(text: str, row: Row) -> str:
    return text


@reward()
def varied(answer: str) -> float:
    return sum(map(ord, answer)) % 7 / 6  # differs between the completions of a prompt


@reward(0)
def length(text: str) -> float:
    return 100.0 * len(text)


plain = Task("numbers", load, lambda row: f"{row.id} + 1 =", validate, (varied,), max_completion_length=6)
watched = replace(plain, rewards=(length, varied))
