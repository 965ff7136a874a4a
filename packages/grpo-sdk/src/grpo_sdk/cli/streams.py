"""Standard streams that never raise: one that is closed, full or without a reader must not end a command's work."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any

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
