"""Ctrl-C ends a command also where a library that is being imported catches it or makes another error of it."""

from __future__ import annotations

import _thread
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

AGAIN_S = 0.5
"""Time after which an import that goes on in spite of an interrupt is interrupted again."""

_IMPORTING = "<frozen importlib._bootstrap>"


class Interrupts:
    """Records that the user interrupted the process.

    Attributes:
        happened: Whether SIGINT arrived while no other handler of it was installed.
    """

    def __init__(self) -> None:
        self.happened = False
        self._is_repeated = False
        self._timer: threading.Timer | None = None

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Raise KeyboardInterrupt as Python's own handler does; during an import, look again whether it went on."""
        self.happened = True
        is_importing = _is_importing(frame)
        if is_importing:
            self.cancel()
            self._timer = threading.Timer(AGAIN_S, self._again)
            self._timer.daemon = True
            self._timer.start()
        is_repeated, self._is_repeated = self._is_repeated, False
        if is_importing or not is_repeated:
            raise KeyboardInterrupt

    def cancel(self) -> None:
        """Interrupt no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _again(self) -> None:
        self._is_repeated = True
        _thread.interrupt_main()


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == _IMPORTING:
            return True
        frame = frame.f_back
    return False


@contextmanager
def interrupts() -> Iterator[Interrupts]:
    """Handle SIGINT where Python's own handler would; a program that ignores it or handles it goes on to."""
    state = Interrupts()
    is_ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if is_ours:
        signal.signal(signal.SIGINT, state.handle)
    try:
        yield state
    finally:
        state.cancel()
        if is_ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
