"""Resource limits of a server's clients."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    """Resource limits of clients.

    Attributes:
        connections: Open connections. At the limit, one that has not sent a whole request head is closed for a new one.
        requests: Requests read and answered at once; others wait with their body unread.
        waiting: Requests that wait; one more is refused with status 429. None lets any number wait.
        head_bytes: Size of a request line and headers.
        body_bytes: Size of a request body, and of a message of a WebSocket.
        head_s: Seconds from connecting, or from the last answer, to the end of the next request's headers.
        body_s: Seconds from the start of reading a body to its end.
        send_s: Seconds for which a client may leave an answer unread.
        grace_s: Seconds that requests which are being answered get at shutdown.
    """

    connections: int = 256
    requests: int = 32
    waiting: int | None = None
    head_bytes: int = 16 << 10
    body_bytes: int = 64 << 20
    head_s: float = 10.0
    body_s: float = 120.0
    send_s: float = 60.0
    grace_s: float = 2.0


@dataclass(frozen=True, slots=True)
class Access:
    """Requests that a server lets through to its application.

    Attributes:
        methods: Allowed methods; the body of a POST request is JSON.
        open_paths: Paths that are answered without a token.
        own_pages: Whether pages of the server itself may send requests, as a user interface does; those of any other
            origin never may.
        websockets: Whether WebSockets are accepted.
    """

    methods: frozenset[str] = frozenset({"POST"})
    open_paths: frozenset[str] = frozenset()
    own_pages: bool = False
    websockets: bool = False
