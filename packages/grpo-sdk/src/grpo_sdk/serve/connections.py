"""Connections of a bounded server: limits of their number, and of the time that a client takes."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from grpo_sdk.serve.guard import Bounds

ENDED_EARLY = (
    "the client ended its side of the connection before its request was whole or the answer had come, as one that "
    "hangs up, so nothing was computed: keep it open until then"
)


class BoundedEventLoop(asyncio.SelectorEventLoop):
    """Limits the duration of TLS handshakes, for which uvicorn allows a minute.

    Args:
        handshake_s: Limit in seconds.
    """

    def __init__(self, handshake_s: float) -> None:
        super().__init__()
        self._handshake_s = handshake_s

    async def create_server(self, *args: Any, **options: Any) -> Any:
        """Create a server as asyncio does, with the limit."""
        if options.get("ssl") is not None:
            options["ssl_handshake_timeout"] = self._handshake_s
        return await super().create_server(*args, **options)


class Connections:
    """Open connections, and those of them that wait for a request.

    Args:
        bounds: Limits.
    """

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self._open: set[BoundedProtocol] = set()
        self._waiting: dict[BoundedProtocol, None] = {}  # the longest wait first

    def add(self, protocol: BoundedProtocol) -> None:
        """Add a new connection; beyond the limit, close the one that has waited longest for its request."""
        self._open.add(protocol)
        if len(self._open) > self.bounds.connections:
            victim = next(iter(self._waiting), protocol)
            self.remove(victim)
            victim.transport.abort()

    def remove(self, protocol: BoundedProtocol) -> None:
        """Forget a connection."""
        self._open.discard(protocol)
        self._waiting.pop(protocol, None)

    def mark(self, protocol: BoundedProtocol, *, waits: bool) -> None:
        """Record whether a connection waits for a request."""
        self._waiting.pop(protocol, None)
        if waits and protocol in self._open:
            self._waiting[protocol] = None


class LingeringTransport:
    """Transport of a `BoundedProtocol`, which may put off its end.

    Args:
        transport: The transport.
        protocol: The protocol.
    """

    def __init__(self, transport: Any, protocol: BoundedProtocol) -> None:
        self._transport, self._protocol = transport, protocol
        self._lingers = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        """Whether nothing more is sent."""
        return self._lingers or bool(self._transport.is_closing())

    def close(self) -> None:
        """Close the connection; while the client still sends, only this side of it.

        A whole connection that is closed with something unread is reset, and the client may lose the answer.
        """
        if self.is_closing() or not self._protocol.linger():
            self._transport.close()
            return
        self._lingers = True
        if self._transport.can_write_eof():  # not with TLS
            self._transport.write_eof()
        self._transport.resume_reading()


class BoundedProtocol(H11Protocol):
    """Closes connections beyond the limit, and those that send a head or read an answer too slowly.

    Args:
        connections: All connections of the server.
        options: Arguments of uvicorn.
    """

    def __init__(self, connections: Connections, **options: Any) -> None:
        super().__init__(**options)
        self._all, self._bounds = connections, connections.bounds
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def connection_made(self, transport: Any) -> None:
        """Count the connection, which has to send a request soon."""
        super().connection_made(cast("Any", LingeringTransport(transport, self)))
        self._all.add(self)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._leave()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Handle what has arrived; after a refusal it is dropped."""
        if not self.transport.is_closing():
            super().data_received(data)

    def eof_received(self) -> bool:  # type: ignore[override] # asyncio takes the answer, uvicorn has none
        """Tell a client that has ended its side of the connection why it gets no answer, as it may have hung up.

        What has no body is answered all the same, since it costs nothing.
        """
        cycle = self.cycle
        if self.transport.is_closing():
            return False
        if cycle is None or cycle.response_complete:
            is_refused = bool(self.conn.trailing_data[0])  # a part of the headers
        elif not cycle.response_started and (cycle.more_body or cycle.scope["method"] == "POST"):
            is_refused = True
        else:
            cycle.keep_alive = False
            return self.scheme == "http"  # with TLS, asyncio ends both sides
        if is_refused:
            self.send_400_response(ENDED_EARLY)
        return False

    def send_400_response(self, msg: str) -> None:
        """Refuse a request; the application is told that nobody waits for its answer."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        super().send_400_response(msg)

    def linger(self) -> bool:
        """Prepare for the end of the answer; returns whether the client still sends its request."""
        if self.conn.their_state not in (h11.SEND_BODY, h11.ERROR):
            return False
        self._wait_for_head()
        return True

    def handle_events(self) -> None:
        """Handle what has arrived; a whole head ends the wait for it."""
        super().handle_events()
        if self.cycle is not None and not self.cycle.response_complete and not self.transport.is_closing():
            self._all.mark(self, waits=False)
            self._stop("head")

    def handle_websocket_upgrade(self, event: Any) -> None:
        """Give the connection to the WebSocket protocol, whose application limits the number of its sessions."""
        self._leave()
        super().handle_websocket_upgrade(event)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        if self.cycle.response_complete and not self.transport.is_closing():  # else the next request was there already
            self._wait_for_head()

    def pause_writing(self) -> None:
        """Start the limit of a client that does not read."""
        super().pause_writing()
        self._start("send", self._bounds.send_s)

    def resume_writing(self) -> None:
        """End that limit."""
        super().resume_writing()
        self._stop("send")

    def _leave(self) -> None:
        self._all.remove(self)
        for name in list(self._timers):
            self._stop(name)

    def _wait_for_head(self) -> None:
        self._all.mark(self, waits=True)
        self._start("head", self._bounds.head_s)

    def _start(self, name: str, seconds: float) -> None:
        self._stop(name)
        self._timers[name] = self.loop.call_later(seconds, self.transport.abort)

    def _stop(self, name: str) -> None:
        if name in self._timers:
            self._timers.pop(name).cancel()
