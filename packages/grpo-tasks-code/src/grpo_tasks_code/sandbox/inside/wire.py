"""Messages between the calling process and the server; both sides import this.

    caller -> server   Request RUN + descriptors: program, stdin, stdout, stderr, status and, unless a script, a channel
    caller -> server   Request KILL
    server -> caller   Reply READY or BROKEN once, then DONE for each program
    program -> caller  status: STARTED with two times, then COMPILED or REFUSED, all before its first line
    both               channel: frames of JSON, each after its length

Program, input and output travel in the descriptors; the server never reads them.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

RUN, KILL = range(2)
READY, BROKEN, DONE = range(3)
SCRIPT, CANDIDATE, JUDGE = range(3)
"""Modes of a program: a script, a tested program that answers questions, the tests that ask them."""

STARTED, COMPILED, REFUSED = b"S", b"C", b"R"
"""Bytes of the status pipe. START follows STARTED; REFUSED replaces COMPILED if a policy refuses the program."""
START = struct.Struct("<dd")
"""Processor seconds that the process has spent so far, and the monotonic clock, which all processes share."""
START_BYTES = len(STARTED) + START.size

EXIT_FAILED, EXIT_SYNTAX, EXIT_MEMORY, EXIT_SETUP = 1, 80, 81, 82
"""Exit codes of the runner. A program may use them too, which only means that it failed."""

MAX_FRAME_BYTES = 1 << 21
"""Size of one message from a program, and so of one value that a tested function returns."""
MAX_NESTING = 400
"""Nesting of one message: `values` uses up to three levels of JSON per level. JSON writers can handle it."""

_REQUEST = struct.Struct("<BIB?IQ")
_MAX_REASON_BYTES = 2000  # the reason of a failed start, within one message
_REPLY = struct.Struct(f"<BIid{_MAX_REASON_BYTES}s")
REQUEST_BYTES, REPLY_BYTES = _REQUEST.size, _REPLY.size
LENGTH = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Request:
    """Request to the server.

    Attributes:
        kind: `RUN` or `KILL`.
        number: Number of the program; a KILL for a program that has ended is ignored.
        mode: `SCRIPT`, `CANDIDATE` or `JUDGE`.
        is_restricted: Whether RestrictedPython compiles the program.
        cpu_s: Processor seconds after which the kernel kills the program.
        memory_bytes: Address space of the program beyond that of the server.
    """

    kind: int
    number: int
    mode: int = SCRIPT
    is_restricted: bool = False
    cpu_s: int = 0
    memory_bytes: int = 0

    def pack(self) -> bytes:
        """Encode as `REQUEST_BYTES` bytes."""
        return _REQUEST.pack(self.kind, self.number, self.mode, self.is_restricted, self.cpu_s, self.memory_bytes)

    @classmethod
    def unpack(cls, data: bytes) -> Request:
        """Decode from bytes."""
        return cls(*_REQUEST.unpack(data))


@dataclass(frozen=True, slots=True)
class Reply:
    """Reply of the server.

    Attributes:
        kind: `READY`, `BROKEN` or `DONE`.
        number: Number of the program.
        status: Wait status of the program.
        cpu_s: Processor seconds of its process, including those before its first line.
        reason: Why the server is BROKEN.
    """

    kind: int
    number: int = 0
    status: int = 0
    cpu_s: float = 0.0
    reason: str = ""

    def pack(self) -> bytes:
        """Encode as `REPLY_BYTES` bytes; a long reason is cut."""
        reason = self.reason.encode("utf-8", "backslashreplace")
        return _REPLY.pack(self.kind, self.number, self.status, self.cpu_s, reason)

    @classmethod
    def unpack(cls, data: bytes) -> Reply:
        """Decode from bytes."""
        kind, number, status, cpu_s, reason = _REPLY.unpack(data)
        return cls(kind, number, status, cpu_s, reason.rstrip(b"\0").decode("utf-8", "replace"))


def frame(message: Any) -> bytes:
    """Encode a message for a channel."""
    data = json.dumps(message, separators=(",", ":")).encode("ascii")
    return LENGTH.pack(len(data)) + data


def parse(data: bytes) -> Any:
    """Decode a message from a frame's bytes.

    Raises:
        ValueError: the bytes are not a message; nor is an integer of thousands of digits, deep nesting, or `null`.
    """
    try:
        message = json.loads(data)
    except RecursionError:
        raise ValueError("nested too deep") from None
    if message is None:  # a reader would take it for no message, and wait past every limit of time
        raise ValueError("null is no message")
    level = [message]
    for _ in range(MAX_NESTING):
        level = [child for value in level if isinstance(value, (list, dict)) for child in _children(value)]
        if not level:
            return message
    raise ValueError("nested too deep")


def _children(value: list[Any] | dict[str, Any]) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


class Channel:
    """A program's end of its channel: blocking frames over a descriptor."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def send(self, message: Any) -> None:
        """Send one message.

        Raises:
            ValueError: the message is longer than the other side reads.
        """
        data = memoryview(frame(message))
        if len(data) > MAX_FRAME_BYTES:
            raise ValueError(f"{len(data)} bytes; at most {MAX_FRAME_BYTES} are read")
        while data:
            data = data[os.write(self._fd, data) :]

    def receive(self) -> Any:
        """Return the next message, or None when the channel is closed."""
        header = self._read(LENGTH.size)
        if len(header) < LENGTH.size:
            return None
        data = self._read(LENGTH.unpack(header)[0])
        return json.loads(data)

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size and (more := os.read(self._fd, size - len(data))):
            data += more
        return data
