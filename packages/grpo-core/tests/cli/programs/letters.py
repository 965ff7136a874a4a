"""A task of eight letters."""

from collections.abc import Iterable

from grpo_sdk import Row, Task, TaskConfig, reward


@reward()
def right(answer: str, row: Row) -> float:
    return float(answer == row.gold)


def load(config: TaskConfig) -> Iterable[Row]:
    return [Row(id=str(number), gold=None if config.path == "nogold" else "1") for number in range(8)]


letters = Task("letters", load, lambda row: row.id, lambda text, row: text, (right,), row=Row)
