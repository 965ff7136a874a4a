"""Waiting for what other processes do."""

import time
from collections.abc import Callable


def eventually(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    """Whether a condition holds within some time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return False
