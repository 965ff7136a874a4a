"""Ending a run on request: the first signal asks, the second insists."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stop_on_signal(stop: threading.Event, say: Callable[[str], None]) -> Iterator[None]:
    """Set `stop` on the first SIGINT or SIGTERM within the block; a second one raises KeyboardInterrupt.

    Outside the main thread nothing is installed, because Python delivers signals there only.

    Args:
        stop: Asked between completions; the run then ends, saved.
        say: Told what happens.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        say("stopping: the run is saved first; once more to stop at once")

    previous = {each: signal.signal(each, ask) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in previous.items():
            signal.signal(each, handler)
