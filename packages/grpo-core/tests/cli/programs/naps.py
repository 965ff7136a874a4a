"""A task whose reward takes as many seconds as the completion says."""

import time
from collections.abc import Iterable

from grpo_sdk import Row, Task, reward


def load() -> Iterable[Row]:
    return [Row(id="a")]


@reward()
def slept(text: str) -> float:
    time.sleep(float(text))
    return 1.0


naps = Task("naps", load, lambda row: "how long?", lambda text: text, [slept], timeout_s=30.0)
