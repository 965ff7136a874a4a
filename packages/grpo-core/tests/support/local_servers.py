"""HTTP servers on this machine for as long as a test needs them."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Handler(BaseHTTPRequestHandler):
    """Prints nothing, and takes a client that has left for none of its business."""

    def body(self) -> Any:
        """The JSON of a request; an empty object where it has none."""
        length = int(self.headers.get("Content-Length", 0))
        return json.loads(self.rfile.read(length)) if length else {}

    def reply(self, status: int, data: bytes, **headers: str) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):
            self.send_response(status)
            for name, value in {"Content-Length": str(len(data)), "Connection": "close", **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

    def address_string(self) -> str:
        return "client"  # a Unix socket has no address

    def log_message(self, format: str, *arguments: object) -> None:
        pass


class LocalServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512  # a full backlog delays connections by a second


@contextmanager
def listening(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """A server for as long as the context lasts; yields its address."""
    server = LocalServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
