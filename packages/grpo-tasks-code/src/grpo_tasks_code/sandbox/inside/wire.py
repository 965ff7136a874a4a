"""Messages between the calling process and what it starts; both sides import this.

    caller -> server   {"run": …} + descriptors: program, stdin, stdout, stderr, status and, unless a script, a channel
    caller -> server   {"kill": number}, {"pause": number} or {"resume": number}
    server -> caller   {} or {"error": …} once, then {"number": …, "status": …, "cpu_s": …} for each program
    caller -> box      {"do": order, …} and bytes; the box answers each with a message, see `box`
    program -> caller  status: STARTED with two times, then COMPILED or REFUSED, all before its first line
    both               channel: frames of JSON, each after its length

Program, input and output travel in the descriptors; the server never reads them.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

SCRIPT, CANDIDATE, JUDGE, INTERPRETER = range(4)
"""Modes of a program: a script, a tested program that answers questions, the tests that ask them, and none, but an
interpreter that gets one source after another."""

STARTED, COMPILED, REFUSED = b"S", b"C", b"R"
"""Bytes of the status pipe. START follows STARTED; REFUSED replaces COMPILED if a policy refuses the program."""
START = struct.Struct("<dd")
"""Processor seconds that the process has spent so far, and the monotonic clock, which all processes share."""
START_BYTES = len(STARTED) + START.size

EXIT_FAILED, EXIT_SYNTAX, EXIT_MEMORY, EXIT_SETUP = 1, 80, 81, 82
"""Exit codes of the runner. A program may use them too, which only means that it failed."""

MAX_MESSAGE_BYTES = 256 << 20
MAX_DESCRIPTORS = 6
MAX_FRAME_BYTES = 1 << 21
"""Size of one message from a program, and so of one value that a tested function returns."""
MAX_NESTING = 400
"""Nesting of one message: `values` uses up to three levels of JSON per level. JSON writers can handle it."""

_HEAD = struct.Struct("<II")
"""Sizes of a message's JSON and of the bytes behind it."""
LENGTH = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Request:
    """Request to run a program.

    Attributes:
        number: Number of the program; a later order to kill another one is ignored.
        mode: `SCRIPT`, `CANDIDATE`, `JUDGE` or `INTERPRETER`.
        is_restricted: Whether RestrictedPython compiles the program.
        cpu_s: Processor seconds after which the kernel kills the program.
        memory_bytes: Address space of the program beyond that of the server.
    """

    number: int
    mode: int
    is_restricted: bool
    cpu_s: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Reply:
    """The server's report of a program that has ended.

    Attributes:
        number: Number of the program.
        status: Wait status of the program.
        cpu_s: Processor seconds of its process, including those before its first line.
    """

    number: int
    status: int
    cpu_s: float


def send(control: socket.socket, message: dict[str, Any], data: bytes = b"", descriptors: Sequence[int] = ()) -> None:
    """Send a message to or from a server or a box."""
    text = json.dumps(message).encode()
    first = _HEAD.pack(len(text), len(data)) + text
    if descriptors:
        socket.send_fds(control, [first], descriptors)
    else:
        control.sendall(first + data)


def receive(control: socket.socket) -> tuple[dict[str, Any], bytes, list[int]] | None:
    """Return the next message with its bytes and descriptors; None when the other side has ended.

    Raises:
        OSError: the message is larger than any that is sent.
    """
    head, descriptors, _, _ = socket.recv_fds(control, _HEAD.size, MAX_DESCRIPTORS)
    head += _exactly(control, _HEAD.size - len(head)) if head else b""
    if len(head) < _HEAD.size:
        return None
    sizes = _HEAD.unpack(head)
    if sum(sizes) > MAX_MESSAGE_BYTES:
        raise OSError("a message is too large")
    text, data = _exactly(control, sizes[0]), _exactly(control, sizes[1])
    return (json.loads(text), data, descriptors) if (len(text), len(data)) == sizes else None


def _exactly(control: socket.socket, size: int) -> bytes:
    """Read so many bytes; fewer when the other side has ended."""
    data = bytearray()
    while len(data) < size and (more := control.recv(min(size - len(data), 1 << 20))):
        data += more
    return bytes(data)


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
