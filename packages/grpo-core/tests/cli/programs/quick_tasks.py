"""Tasks for `grpo run --quick`: with and without a model, and one whose held-out rows are trained on."""

from collections.abc import Iterable
from typing import Any

from grpo_sdk import Row, Task, TaskConfig, reward


def load(config: TaskConfig) -> Iterable[Row]:
    return [Row(id=letter, gold=letter) for letter in ("abcdefgh" if config.split == "train" else "ijkl")]


def overlapping(config: TaskConfig) -> Iterable[Row]:
    return [Row(id="a", gold="a")]


@reward()
def same(answer: str, row: Row) -> float:
    return float(answer == row.id)


def task(name: str, load: Any = load, **options: Any) -> Task:
    return Task(name, load, lambda row: f"say {row.id}:", lambda text: text, (same,), row=Row, **options)


letters = task("letters", max_completion_length=4)
known = task("known", default_model="tiny")
trained = task("trained", overlapping)
