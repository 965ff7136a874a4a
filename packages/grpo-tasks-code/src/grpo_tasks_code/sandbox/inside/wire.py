"""The messages between the process that asks for a run and the server that forks it; both sides import this.

    asker -> server    Request RUN + descriptors: program, stdin, stdout, stderr, status and, unless a script, a channel
    asker -> server    Request KILL
    server -> asker    Reply READY or BROKEN once, then DONE for each program
    program -> asker   status: STARTED with two times, then COMPILED or REFUSED, all before its first line
    both               channel: frames of JSON, a length before each

Program text, input and output travel in the descriptors: the server never sees them.
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
"""What the program is: one that runs to its end, a tested one that answers questions, the tests that ask them."""

STARTED, COMPILED, REFUSED = b"S", b"C", b"R"
"""Bytes of the status pipe. STARTED is followed by START; REFUSED, by a policy, stands in place of COMPILED."""
START = struct.Struct("<dd")
"""Processor seconds that the process has spent by then, and the monotonic clock, which all processes share."""
START_BYTES = len(STARTED) + START.size

EXIT_FAILED, EXIT_SYNTAX, EXIT_MEMORY, EXIT_SETUP = 1, 80, 81, 82
"""Exit codes of the runner. A program may end with them too, which says no more than that it failed."""

MAX_FRAME_BYTES = 1 << 21
"""Of one message from a program, and so of one value that a tested function returns."""
MAX_NESTING = 400
"""Of one message: `values` takes up to three levels of JSON for one of its own. Whatever writes JSON manages it."""

_REQUEST = struct.Struct("<BIB?IQ")
_MAX_REASON_BYTES = 2000  # what explains a failed start, within one message
_REPLY = struct.Struct(f"<BIid{_MAX_REASON_BYTES}s")
REQUEST_BYTES, REPLY_BYTES = _REQUEST.size, _REPLY.size
LENGTH = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Request:
    """What the server is to do.

    Attributes:
        kind: `RUN` or `KILL`.
        number: Of the program; a KILL for one that is over is ignored.
        mode: `SCRIPT`, `CANDIDATE` or `JUDGE`.
        is_restricted: Whether RestrictedPython compiles the program.
        cpu_s: Processor seconds after which the kernel kills it.
        memory_bytes: Address space that it may take beyond what the server has.
    """

    kind: int
    number: int
    mode: int = SCRIPT
    is_restricted: bool = False
    cpu_s: int = 0
    memory_bytes: int = 0

    def pack(self) -> bytes:
        """As `REQUEST_BYTES` bytes."""
        return _REQUEST.pack(self.kind, self.number, self.mode, self.is_restricted, self.cpu_s, self.memory_bytes)

    @classmethod
    def unpack(cls, data: bytes) -> Request:
        """From bytes."""
        return cls(*_REQUEST.unpack(data))


@dataclass(frozen=True, slots=True)
class Reply:
    """What the server says.

    Attributes:
        kind: `READY`, `BROKEN` or `DONE`.
        number: Of the program.
        status: Its wait status.
        cpu_s: Processor seconds of its process, those before its first line included.
        reason: Why the server is BROKEN, or what a READY one has to tell about itself.
    """

    kind: int
    number: int = 0
    status: int = 0
    cpu_s: float = 0.0
    reason: str = ""

    def pack(self) -> bytes:
        """As `REPLY_BYTES` bytes; a reason is cut to what fits."""
        reason = self.reason.encode("utf-8", "backslashreplace")
        return _REPLY.pack(self.kind, self.number, self.status, self.cpu_s, reason)

    @classmethod
    def unpack(cls, data: bytes) -> Reply:
        """From bytes."""
        kind, number, status, cpu_s, reason = _REPLY.unpack(data)
        return cls(kind, number, status, cpu_s, reason.rstrip(b"\0").decode("utf-8", "replace"))


def frame(message: Any) -> bytes:
    """A message for a channel."""
    data = json.dumps(message, separators=(",", ":")).encode("ascii")
    return LENGTH.pack(len(data)) + data


def parse(data: bytes) -> Any:
    """A message from a frame's bytes.

    Raises:
        ValueError: it is none. (An integer of thousands of digits, deep nesting, or `null` is none either.)
    """
    try:
        message = json.loads(data)
    except RecursionError:
        raise ValueError("nested too deep") from None
    if message is None:  # who waits for a message would go on waiting, past every limit of time
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
            ValueError: it is longer than the other side reads.
        """
        data = memoryview(frame(message))
        if len(data) > MAX_FRAME_BYTES:
            raise ValueError(f"{len(data)} bytes; at most {MAX_FRAME_BYTES} are read")
        while data:
            data = data[os.write(self._fd, data) :]

    def receive(self) -> Any:
        """The next message, or None when there will be none."""
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
