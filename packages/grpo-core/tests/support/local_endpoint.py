"""An OpenAI-compatible server on this machine that answers as a function says, for tests."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from local_servers import Handler, listening

Reply = tuple[int, bytes]


def completion(text: str | None, *, finish_reason: str = "stop", tokens: int = 2) -> Reply:
    """What a server says to `/v1/completions`."""
    reply = {"choices": [{"text": text, "finish_reason": finish_reason}], "usage": {"completion_tokens": tokens}}
    return 200, json.dumps(reply).encode()


def streamed_chat(text: str, calls: Sequence[Mapping[str, Any]] = ()) -> Reply:
    """What a server says to `/v1/chat/completions` with `stream`; calls have `name` and `arguments`."""
    delta: dict[str, Any] = {"role": "assistant", "content": text}
    for place, call in enumerate(calls):
        function = {"name": call["name"], "arguments": json.dumps(call["arguments"])}
        made = {"index": place, "id": f"call_{place}", "type": "function", "function": function}
        delta.setdefault("tool_calls", []).append(made)
    said = {"index": 0, "delta": delta, "finish_reason": None}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    chunks = [
        {"choices": [said]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls" if calls else "stop"}]},
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

    class Endpoint(Handler):
        def do_POST(self) -> None:
            asked = {**self.body(), "path": self.path, "key": self.headers.get("Authorization", "")}
            status, data = state.answer(asked)
            kind = "text/event-stream" if data.startswith(b"data:") else "application/json"
            self.reply(status, data, **{"Content-Type": kind})

    with listening(Endpoint) as address:
        state.url = f"{address}/v1"
        yield state
