"""A task whose scores tell the environment of the process that scores."""

import os
from collections.abc import Iterable

from grpo_sdk import Row, Task, reward


def load(config) -> Iterable[Row]:
    yield Row(id="0")


def validate(text, row):
    return f"{os.environ.get(text, 'none')} {__file__}"


@reward()
def right(answer, row):
    raise LookupError(answer)


told = Task("told", load, lambda row: "?", validate, [right], conditions=lambda config: {"sandbox": "L2"})
