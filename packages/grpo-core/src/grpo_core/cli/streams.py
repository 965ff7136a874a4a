"""Standard streams that are closed, full, or lose their reader: nobody's work is lost for want of somebody to tell."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any

_STANDARD = (0, 1, 2)


class Outlet:
    """A text stream whose failures are kept in place of raised; after the first, what is written is dropped.

    Args:
        stream: The stream; None where it is closed.

    Attributes:
        error: What the system said first; None while all is well.
    """

    def __init__(self, stream: IO[str] | None) -> None:
        self.error: OSError | None = None
        self._has_lost = False
        if stream is None:
            self.error = OSError(errno.EBADF, os.strerror(errno.EBADF))
            stream = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - stands for the stream until the end
        self._stream: IO[str] = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write, unless something went wrong before."""
        if self.error is None:
            try:
                return self._stream.write(text)
            except OSError as error:
                self._lose(error)
        self._has_lost = True
        return len(text)

    def flush(self) -> None:
        """Flush, unless something went wrong before."""
        if self.error is None:
            try:
                self._stream.flush()
            except OSError as error:
                self._has_lost = True
                self._lose(error)

    @property
    def problem(self) -> str:
        """What to tell the user of what was lost; a reader that goes, as `head` does, has what it wants."""
        if not self._has_lost or self.error is None or self.error.errno == errno.EPIPE:
            return ""
        return "it is closed" if self.error.errno == errno.EBADF else self.error.strerror or str(self.error)

    def _lose(self, error: OSError) -> None:
        self.error = error
        with suppress(OSError, ValueError):  # a stream without a descriptor, as in a test
            # What is still buffered goes nowhere; else the interpreter would complain of it at its end.
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self._stream.fileno())
            os.close(null)


@contextmanager
def standard_streams() -> Iterator[Outlet]:
    """Make stdout and stderr ones that never raise, and yield stdout: who wrote results asks it how it went.

    A closed descriptor is opened on nothing, since the next file to be opened would be given its number, and what a
    library prints would end up in that file.
    """
    for number in _STANDARD:
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)  # the lowest free number, which is this
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
