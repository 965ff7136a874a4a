"""A task whose reward hangs, crashes or takes its process with it, as the completion says."""

import os
from collections.abc import Iterable

from grpo_sdk import Row, Task, reward


def load() -> Iterable[Row]:
    yield Row(id="only", gold="fine")


def prompt(row: Row) -> str:
    return "Say something:"


def validate(text: str) -> str:
    return text.strip()


@reward()
def right(answer: str, row: Row) -> float:
    if answer == "hang":
        while True:
            pass
    if answer == "crash":
        raise LookupError(answer)
    if answer == "exit":
        os._exit(1)
    return float(answer == row.gold)


task = Task(name="faults", load=load, prompt=prompt, validate=validate, rewards=[right], timeout_s=1.0)
