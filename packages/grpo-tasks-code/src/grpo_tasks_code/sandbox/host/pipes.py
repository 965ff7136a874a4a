"""The calling process's side of a program's files and pipes.

The write ends of the pipes stay open here too until the run is over: the server reports the program's end, and an end
of file on each pipe would wake this process three times more. Reading never waits.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile

from grpo_tasks_code.sandbox.inside import wire

_READ_BYTES = 1 << 16
_SEALS = 0xF
"""F_SEAL_SEAL, SHRINK, GROW and WRITE: a program cannot store anything in its input."""


def memory_file(content: bytes) -> int:
    """Return a read-only descriptor of the content."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("sandbox", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        written = memoryview(content)
        while written:
            written = written[os.write(fd, written) :]
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    else:
        with tempfile.TemporaryFile() as temporary:
            temporary.write(content)
            temporary.flush()
            fd = os.dup(temporary.fileno())
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


class Pipe:
    """A pipe that a program writes to.

    Attributes:
        read_end: Descriptor to read from, without waiting.
        write_end: Descriptor for the program.
    """

    def __init__(self) -> None:
        self.read_end, self.write_end = os.pipe()
        os.set_blocking(self.read_end, False)

    def read(self) -> bytes:
        """Read some of the content; empty if there is none."""
        with contextlib.suppress(BlockingIOError):
            return os.read(self.read_end, _READ_BYTES)
        return b""

    def close(self) -> None:
        """Close both ends."""
        os.close(self.read_end)
        os.close(self.write_end)


class OutputPipe(Pipe):
    """Stdout or stderr.

    Args:
        limit: Bytes that are kept.
    """

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit
        self._output = bytearray()

    @property
    def is_over_limit(self) -> bool:
        """Whether the program has written more than the limit."""
        return len(self._output) > self._limit

    @property
    def text(self) -> str:
        """Output so far, up to the limit."""
        return bytes(self._output[: self._limit]).decode("utf-8", "replace")

    def forget(self) -> bytes:
        """Return the output so far, up to the limit, and start anew."""
        output = bytes(self._output[: self._limit])
        self._output.clear()
        return output

    def take(self) -> bool:
        """Read some output; return whether there was any."""
        data = self.read()
        self._output += data[: self._limit + 1 - len(self._output)]
        return bool(data)

    def drain(self) -> None:
        """Read all output, or enough to exceed the limit: another process may go on writing."""
        while not self.is_over_limit and self.take():
            pass


class StatusPipe(Pipe):
    """Reports of the child process before its program begins, as `wire` describes them."""

    def __init__(self) -> None:
        super().__init__()
        self._received = b""

    def look(self) -> None:
        """Read what has arrived."""
        self._received += self.read()

    @property
    def has_started(self) -> bool:
        """Whether the process was ready to run the program."""
        return len(self._received) >= wire.START_BYTES

    @property
    def started(self) -> tuple[float, float]:
        """Start of the program on the monotonic clock, and the processor seconds that were spent before."""
        cpu_s, at = wire.START.unpack_from(self._received, len(wire.STARTED))
        return at, cpu_s

    @property
    def is_compiled(self) -> bool:
        """Whether the program could be compiled."""
        return wire.COMPILED in self._received[wire.START_BYTES :]

    @property
    def is_refused(self) -> bool:
        """Whether a policy refused the program."""
        return wire.REFUSED in self._received[wire.START_BYTES :]
