"""What the process of a command does with Ctrl-C and its standard streams.

Ctrl-C ends a command also where a library that is being imported catches it or makes another error of it. Streams never
raise: one that is closed, full or without a reader must not end a command's work.
"""

from __future__ import annotations

import _thread
import errno
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import IO, Any

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


_STANDARD = (0, 1, 2)


class Outlet:
    """A text stream that records its first failure instead of raising it, and drops everything written after it.

    Args:
        stream: The stream; None where it is closed.

    Attributes:
        error: The first error; None if there was none.
    """

    def __init__(self, stream: IO[str] | None) -> None:
        self.error: OSError | None = None
        self._has_lost = False
        if stream is None:
            self.error = OSError(errno.EBADF, os.strerror(errno.EBADF))
            stream = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - replaces the stream until the end
        self._stream: IO[str] = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write, unless an earlier write failed."""
        if self.error is None:
            try:
                return self._stream.write(text)
            except OSError as error:
                self._lose(error)
        self._has_lost = True
        return len(text)

    def flush(self) -> None:
        """Flush, unless an earlier write failed."""
        if self.error is None:
            try:
                self._stream.flush()
            except OSError as error:
                self._has_lost = True
                self._lose(error)

    @property
    def problem(self) -> str:
        """The error to report if output was lost; empty if the reader closed the pipe, as `head` does."""
        if not self._has_lost or self.error is None or self.error.errno == errno.EPIPE:
            return ""
        return "it is closed" if self.error.errno == errno.EBADF else self.error.strerror or str(self.error)

    def _lose(self, error: OSError) -> None:
        self.error = error
        with suppress(OSError, ValueError):  # a stream without a descriptor, as in a test
            # Discard what is still buffered; otherwise the interpreter would report it at exit.
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self._stream.fileno())
            os.close(null)


@contextmanager
def standard_streams() -> Iterator[Outlet]:
    """Replace stdout and stderr by streams that never raise, and yield stdout, which records its failure.

    A closed descriptor is opened on the null device, since the next file to be opened would get its number and would
    receive what libraries print.
    """
    for number in _STANDARD:
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)  # gets the lowest free number: this one
    before = sys.stdout, sys.stderr
    stdout, stderr = Outlet(sys.stdout), Outlet(sys.stderr)
    sys.stdout, sys.stderr = stdout, stderr
    try:
        yield stdout
    finally:
        stdout.flush()
        stderr.flush()
        sys.stdout, sys.stderr = before
        for stream, outlet in zip(before, (stdout, stderr), strict=True):
            if stream is None:
                outlet.close()
