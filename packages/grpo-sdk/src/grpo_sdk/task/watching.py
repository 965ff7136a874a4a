"""What a task's code does in this process, for a display: the rows that it loads, a call that does not return."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Watch = Callable[[str, int, int], None]
"""Told what is done, the parts of it so far, and how many there will be, 0 where that is unknown."""

SLOW_S = 5.0
"""Time after which a call that has not returned is told, every `TELL_S`: it has no time limit in this process."""

TELL_S = 1.0

_watching: list[Watch] = []
_calls: list[tuple[str, float]] = []


@contextmanager
def watching(watch: Watch) -> Iterator[None]:
    """Tell what tasks do inside the block: generating rows can take minutes, and an author's function may hang."""
    ended = threading.Event()

    def tell_slow_calls() -> None:
        while not ended.wait(TELL_S):
            for what, since in _calls[:1]:  # a copy: other threads change the list
                if time.monotonic() - since >= SLOW_S:
                    watch(f"{what}, running for {time.monotonic() - since:.0f} s", 0, 0)

    _watching.append(watch)
    thread = threading.Thread(target=tell_slow_calls, name="slow calls", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        _watching.remove(watch)


def watcher() -> Watch | None:
    """The innermost display, if there is one."""
    return _watching[-1] if _watching else None


@contextmanager
def calling(what: str) -> Iterator[None]:
    """Note that an author's function is called inside the block."""
    call = (what, time.monotonic())
    _calls.append(call)
    try:
        yield
    finally:
        _calls.remove(call)
