"""What a program reads from and writes to, from this side.

The write ends of its pipes stay open here too until the run is over: the end of a program is told by its server, and an
end of file on each pipe would wake this process three times more. What is in a pipe is read without waiting.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile

from grpo_tasks_code.sandbox.inside import wire

_READ_BYTES = 1 << 16
_SEALS = 0xF
"""F_SEAL_SEAL, SHRINK, GROW and WRITE: a program cannot keep anything in its input."""


def memory_file(content: bytes) -> int:
    """A descriptor to read the content from, which nothing can be written to."""
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
        read_end: This side's; reading never waits.
        write_end: The program's.
    """

    def __init__(self) -> None:
        self.read_end, self.write_end = os.pipe()
        os.set_blocking(self.read_end, False)

    def read(self) -> bytes:
        """Some of what is there; empty when nothing is."""
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
        self._held = bytearray()

    @property
    def is_over_limit(self) -> bool:
        """Whether the program has written more."""
        return len(self._held) > self._limit

    @property
    def text(self) -> str:
        """What was read, up to the limit."""
        return bytes(self._held[: self._limit]).decode("utf-8", "replace")

    def take(self) -> bool:
        """Read some; whether there was any."""
        data = self.read()
        self._held += data[: self._limit + 1 - len(self._held)]
        return bool(data)

    def drain(self) -> None:
        """Read what is there, or enough to know that it is too much: something may go on writing."""
        while not self.is_over_limit and self.take():
            pass


class StatusPipe(Pipe):
    """What a child says of itself before its program begins, as `wire` describes it."""

    def __init__(self) -> None:
        super().__init__()
        self._said = b""

    def look(self) -> None:
        """Read what has come."""
        self._said += self.read()

    @property
    def has_started(self) -> bool:
        """Whether the process was ready to run the program."""
        return len(self._said) >= wire.START_BYTES

    @property
    def started(self) -> tuple[float, float]:
        """When, by the monotonic clock, and with how much processor time already spent."""
        cpu_s, at = wire.START.unpack_from(self._said, len(wire.STARTED))
        return at, cpu_s

    @property
    def is_compiled(self) -> bool:
        """Whether the program could be compiled."""
        return wire.COMPILED in self._said[wire.START_BYTES :]

    @property
    def is_refused(self) -> bool:
        """Whether a policy refused it."""
        return wire.REFUSED in self._said[wire.START_BYTES :]


class ProgramPipes:
    """The pipes of one program.

    Args:
        output_limit: Bytes that are kept of stdout, and of stderr.

    Attributes:
        outputs: Stdout and stderr, by the descriptor to read from.
        write_ends: The program's descriptors: stdout, stderr, status.
    """

    def __init__(self, output_limit: int) -> None:
        self.stdout, self.stderr, self.status = OutputPipe(output_limit), OutputPipe(output_limit), StatusPipe()
        self.outputs = {pipe.read_end: pipe for pipe in (self.stdout, self.stderr)}
        self.write_ends = [pipe.write_end for pipe in (self.stdout, self.stderr, self.status)]

    def drain(self) -> None:
        """Read what is left, when the program has ended."""
        self.status.look()
        self.stdout.drain()
        self.stderr.drain()

    def close(self) -> None:
        """Close them all."""
        for pipe in (self.stdout, self.stderr, self.status):
            pipe.close()
