"""A plugin that gives two tasks of one name."""

from collections.abc import Iterable

from grpo_core import Row, Task, hookimpl, reward


def load(config) -> Iterable[Row]:
    return [Row(id="only", gold="yes")]


@reward()
def agrees(answer):
    return float(answer == "yes")


def task() -> Task:
    return Task("yes", load, lambda row: "Say yes.", lambda text, row: text.strip(), (agrees,))


@hookimpl
def grpo_tasks():
    return [task(), task()]
