"""The asking process's end of a program's channel."""

from __future__ import annotations

import select
import socket
from typing import Any

from grpo_tasks_code.sandbox.inside import wire

SEND_TIMEOUT_S = 5.0
"""For a program to read its channel and so make room for a message."""
_READ_BYTES = 1 << 16


class MessageChannel:
    """Sends and receives JSON messages; reading never waits. What a program sends that is no message closes it.

    Attributes:
        program_end: The program's end of the channel.
        is_open: Whether messages can still be exchanged.
    """

    def __init__(self) -> None:
        self._socket, self.program_end = socket.socketpair()
        self._socket.setblocking(False)
        self._poll: select.poll | None = None
        self._inbox = bytearray()
        self.is_open = True

    def fileno(self) -> int:
        """The descriptor of this end."""
        return self._socket.fileno()

    def watch(self, poll: select.poll) -> None:
        """Have a poll object report when there is something to read."""
        self._poll = poll
        poll.register(self, select.POLLIN)

    def send(self, message: Any) -> None:
        """Send a message; a program that does not make room for it in time does not answer either."""
        data = wire.frame(message)
        if not self.is_open:
            return
        self._socket.settimeout(SEND_TIMEOUT_S)
        try:
            self._socket.sendall(data)
            self._socket.setblocking(False)
        except OSError:
            self.close()

    def read(self) -> None:
        """Read what has arrived."""
        try:
            data = self._socket.recv(_READ_BYTES)
        except OSError:
            data = b""
        self._inbox += data
        if not data or len(self._inbox) > wire.LENGTH.size + wire.MAX_FRAME_BYTES:
            self.close()

    @property
    def has_message(self) -> bool:
        """Whether a whole message has been read, or the beginning of one that is too long."""
        if len(self._inbox) < wire.LENGTH.size:
            return False
        (length,) = wire.LENGTH.unpack_from(self._inbox)
        return bool(length > wire.MAX_FRAME_BYTES) or len(self._inbox) >= wire.LENGTH.size + length

    def take(self) -> Any:
        """The next message; None when none has been read."""
        if not self.has_message:
            return None
        (length,) = wire.LENGTH.unpack_from(self._inbox)
        end = wire.LENGTH.size + length
        data = bytes(self._inbox[wire.LENGTH.size : end])
        del self._inbox[:end]
        try:
            return wire.parse(data)
        except ValueError:  # too long, or not JSON
            self.close()
            return None

    def close(self) -> None:
        """Close this end: a program that reads from the channel then comes to its end."""
        if self.is_open:
            if self._poll is not None:
                self._poll.unregister(self)
            self._socket.close()
            self.is_open = False
        self._inbox.clear()
