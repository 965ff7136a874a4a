"""The beginning of a script that defines a task and uses it; it notes each process that imports it."""

import os
import threading  # noqa: F401
from pathlib import Path

from grpo_sdk import KillablePool, Row, Scorer, Task, load_task, reward  # noqa: F401

with Path(__file__).with_suffix(".imports").open("a") as log:
    log.write(f"{os.getpid()}\n")


def load(config) -> list[Row]:
    return [Row(id="a", gold="1")]


@reward()
def right(answer):
    return 1.0


one = Task("one", load, lambda row: "p", lambda text, row: text, [right])
SPEC = f"{__file__}:one"
