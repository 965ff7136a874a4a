"""Servers whose replies never end, or are packed."""

from __future__ import annotations

from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from server_engines import MODEL, TOKENIZER, request, run
from vllm_server import FakeVLLM, handler_of, listening

from grpo_core.engines.servers import client
from grpo_core.engines.servers.client import ServerClient
from grpo_core.engines.servers.products import VLLM
from grpo_core.engines.servers.vllm import open_vllm
from grpo_core.errors import EngineError


def endless(path: str, piece: bytes) -> type[BaseHTTPRequestHandler]:
    """Replies without an end at a path, in pieces, and as usual elsewhere."""

    class Handler(handler_of(FakeVLLM())):  # type: ignore[misc] # a class that a function makes
        def _reply(self, body: dict[str, Any]) -> None:
            if self.path != path:
                super()._reply(body)
                return
            self.send_response(200)
            self.end_headers()
            with suppress(BrokenPipeError, ConnectionResetError):  # the client has left
                while True:
                    self.wfile.write(piece)

    return Handler


def sample(url: str) -> str:
    engine = open_vllm(MODEL, TOKENIZER, max_batch_tokens=64, precision="float32", url=url, timeout_s=1)
    return run(engine, [request()])[0].text


def test_the_limit_of_a_request_is_that_of_its_whole_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_REPLY_BYTES", 2**40)
    with (
        listening(endless("/v1/completions", b" ")) as url,
        pytest.raises(EngineError, match="no whole reply to /v1/completions within 1 s"),
    ):
        sample(url)
    monkeypatch.setattr(client, "CONTROL_S", 1)
    with (
        listening(endless("/v1/models", b" ")) as url,
        pytest.raises(EngineError, match="no whole reply to /v1/models within 1 s"),
    ):
        sample(url)


def test_the_content_of_a_reply_about_the_health_is_not_read() -> None:
    with listening(endless("/health", b"x" * 2**16)) as url:
        assert sample(url) == "7"

    class Packed(handler_of(FakeVLLM())):  # type: ignore[misc] # a class that a function makes
        def end_headers(self) -> None:
            self.send_header("Content-Encoding", "gzip")
            super().end_headers()

    with listening(Packed) as url:
        assert ServerClient(VLLM, url, timeout_s=10).is_up()
