"""A server of tasks in a thread, and requests to it."""

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from grpo_sdk.serve import Bounds
from grpo_sdk.serve.server import DEFAULT_BOUNDS, ServeOptions, TaskServer

SOON_S = 60.0
"""For what takes a fraction of a second, on a machine that is busy."""


@contextmanager
def serving(
    *tasks: Any, token: str = "", bounds: Bounds = DEFAULT_BOUNDS, workers: int = 1, **more: Any
) -> Iterator[TaskServer]:
    """A server in a thread, which ends with the block."""
    timeout_s = more.pop("timeout_s", None)
    options = ServeOptions(workers=workers, timeout_s=timeout_s, bounds=replace(bounds, grace_s=5.0), **more)
    with TaskServer(tasks, token, port=0, options=options) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(SOON_S)
            assert not thread.is_alive()


def send(server: TaskServer, path: str, body: Any = None, **headers: str) -> tuple[int, Any, http.client.HTTPMessage]:
    """Status, parsed answer and headers: of a GET without a body, else of a POST."""
    connection = http.client.HTTPConnection(urlsplit(server.address).netloc, timeout=SOON_S)
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    with closing(connection):
        all_headers = {"Content-Type": "application/json", **headers}
        connection.request("GET" if body is None else "POST", path, data, all_headers)
        response = connection.getresponse()
        text = response.read().decode()
        is_json = (response.getheader("Content-Type") or "").startswith("application/json")
        return response.status, json.loads(text) if is_json else text, response.headers


def ask(server: TaskServer, path: str, body: Any = None) -> Any:
    """The answer of a request that has to succeed."""
    status, answer, _ = send(server, path, body)
    assert status == 200, answer
    return answer


def refused(server: TaskServer, path: str, body: Any = None) -> tuple[int, str]:
    """Status and reason of a request that has to be refused."""
    status, answer, _ = send(server, path, body)
    assert status >= 400, answer
    return status, answer["error"] if isinstance(answer, dict) else answer
