"""An OpenAI-compatible server on this machine that answers as a function says, for tests."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = tuple[int, bytes]


def completion(text: str | None, *, finish_reason: str = "stop", tokens: int = 2) -> Reply:
    """What a server says to `/v1/completions`."""
    reply = {"choices": [{"text": text, "finish_reason": finish_reason}], "usage": {"completion_tokens": tokens}}
    return 200, json.dumps(reply).encode()


def streamed_chat(text: str) -> Reply:
    """What a server says to `/v1/chat/completions` with `stream`."""
    said = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    chunks = [
        {"choices": [said]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        {"choices": [], "usage": usage},
    ]
    known = {"id": "x", "object": "chat.completion.chunk", "created": 0, "model": "m"}
    lines = [*(json.dumps(known | chunk) for chunk in chunks), "[DONE]"]
    return 200, "".join(f"data: {line}\n\n" for line in lines).encode()


class Server:
    """What was asked, and how many requests were there at once."""

    def __init__(self, respond: Callable[[dict[str, Any]], Reply]) -> None:
        self.respond, self.url = respond, ""
        self.seen: list[dict[str, Any]] = []
        self.most_in_flight = self._in_flight = 0
        self._lock = threading.Lock()

    def answer(self, request: dict[str, Any]) -> Reply:
        with self._lock:
            self.seen.append(request)
            self._in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self._in_flight)
        try:
            return self.respond(request)
        finally:
            with self._lock:
                self._in_flight -= 1


@contextmanager
def serving(respond: Callable[[dict[str, Any]], Reply]) -> Iterator[Server]:
    """A server for as long as the context lasts; `respond` is given each request's body and path."""
    state = Server(respond)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, data = state.answer({**body, "path": self.path, "key": self.headers.get("Authorization", "")})
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Content-Type", "text/event-stream" if data.startswith(b"data:") else "application/json")
            self.end_headers()
            with suppress(BrokenPipeError, ConnectionResetError):  # the client has left
                self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            pass

    class LocalServer(ThreadingHTTPServer):
        request_queue_size = 128  # a full backlog delays connections by a second

    server = LocalServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
