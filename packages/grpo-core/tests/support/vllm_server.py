"""A server with the requests of `vllm serve` that the engine makes; a function or a real model makes completions."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from local_servers import Handler, listening

Reply = tuple[int, Any]

EOS, SEVEN = 1, 24
"""Tokens of `fresh_model`'s tokenizer: after two special tokens come the printable characters, from "!" on."""


def choice(token_ids: list[int], *, logprob: float = -1.0, finish_reason: str = "stop") -> dict[str, Any]:
    """A completion as `/v1/completions` replies with it."""
    logprobs = {"token_logprobs": [logprob] * len(token_ids), "tokens": [f"token_id:{token}" for token in token_ids]}
    return {"token_ids": token_ids, "logprobs": logprobs, "finish_reason": finish_reason, "text": ""}


def ends_at_once(server: FakeVLLM, body: dict[str, Any]) -> dict[str, Any]:
    """A completion of one letter, and the end."""
    fits = body["max_tokens"] > 1
    return choice([SEVEN, EOS] if fits else [SEVEN], finish_reason="stop" if fits else "length")


@dataclass
class FakeVLLM:
    """State of a server.

    Attributes:
        respond: Makes the completion of a request.
        dev_mode: Whether it takes weights.
        lora: Whether it takes adapters.
        config: Fields of its model's configuration, as `/server_info` shows them.
        folder: Weights that were loaded last.
        loaded: Names of the files of each folder of weights or adapter, in order.
        adapters: Name -> folder.
        seen: Path and body of every request but those for the health.
    """

    respond: Callable[[FakeVLLM, dict[str, Any]], dict[str, Any]] = ends_at_once
    dev_mode: bool = True
    lora: bool = False
    config: dict[str, Any] = field(default_factory=lambda: {"logprobs_mode": "raw_logprobs"})
    max_model_len: int = 512
    weight_transfer: str | None = None
    device: str = "cuda"
    version: str = "default"
    folder: str = ""
    loaded: list[list[str]] = field(default_factory=list)
    adapters: dict[str, str] = field(default_factory=dict)
    seen: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    on_load: Callable[[str], None] = lambda folder: None
    url: str = ""

    def paths(self) -> list[str]:
        return [path for path, _ in self.seen]

    def completions(self) -> list[dict[str, Any]]:
        return [body for path, body in self.seen if path == "/v1/completions"]

    def answer(self, path: str, body: dict[str, Any]) -> Reply:
        if path == "/health":
            return 200, None
        self.seen.append((path, body))
        name = path.partition("?")[0]
        if name == "/v1/models":
            return 200, {"data": [{"id": "served", "max_model_len": self.max_model_len}]}
        if name == "/v1/completions":
            if body["model"] not in ("served", *self.adapters):
                return 404, {"error": {"message": f"The model `{body['model']}` does not exist."}}
            return 200, {"choices": [self.respond(self, body)]}
        if name.startswith("/v1/"):
            return self._adapter(name, body)
        return self._development(name, body) if self.dev_mode else (404, {"detail": "Not Found"})

    def _adapter(self, name: str, body: dict[str, Any]) -> Reply:
        if not self.lora:
            return 404, {"detail": "Not Found"}
        if name == "/v1/load_lora_adapter":
            self._load(body["lora_path"])
            self.adapters[body["lora_name"]] = body["lora_path"]
            return 200, "Success"
        return (200, "Success") if self.adapters.pop(body["lora_name"], None) else (404, {"error": "no such adapter"})

    def _development(self, name: str, body: dict[str, Any]) -> Reply:
        if name == "/server_info":
            transfer = None if self.weight_transfer is None else {"backend": self.weight_transfer}
            lora = {"max_lora_rank": 16} if self.lora else None
            config = {
                "model_config": self.config, "lora_config": lora, "weight_transfer_config": transfer,
                "device_config": {"device": self.device},
            }  # fmt: skip
            return 200, {"vllm_config": config}
        if name == "/weight_info":
            return 200, {"weight_version": self.version}
        if name == "/update_weight_version":
            self.version = body["new_version"]
        if name == "/collective_rpc":
            assert body["method"] == "reload_weights"
            path = body["kwargs"]["weights_path"]
            if not Path(path).is_dir():
                return 500, {"error": f"no such folder: {path}"}
            self._load(path)
            return 200, {"results": [None]}
        return 200, {"success": True}

    def _load(self, folder: str) -> None:
        self.folder = folder
        self.loaded.append(sorted(file.name for file in Path(folder).iterdir()))
        self.on_load(folder)


def handler_of(fake: FakeVLLM) -> type[Handler]:
    class VLLM(Handler):
        def do_GET(self) -> None:
            self._reply(self.body())

        do_POST = do_GET

        def _reply(self, body: dict[str, Any]) -> None:
            status, reply = fake.answer(self.path, body)
            self.reply(status, json.dumps(reply).encode())

    return VLLM


class UnixServer(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 512


@contextmanager
def serving(fake: FakeVLLM) -> Iterator[FakeVLLM]:
    """A stand-in that listens on this machine for as long as the context lasts."""
    with listening(handler_of(fake)) as fake.url:
        yield fake


def native_answers(tokenizer: Any) -> FakeVLLM:
    """A server that loads the weights that it is sent with transformers, and samples with our own engine."""
    engines, lock = list[Any](), threading.Lock()

    def load(folder: str) -> None:
        from transformers import AutoModelForCausalLM

        from grpo_core.engines.native import NativeEngine

        engines[:] = [NativeEngine(AutoModelForCausalLM.from_pretrained(folder).eval(), tokenizer)]

    def respond(fake: FakeVLLM, body: dict[str, Any]) -> dict[str, Any]:
        from grpo_sdk.endpoints.base import Request, SampleKey, Sampling

        request = Request(tuple(body["prompt"]), SampleKey(body.get("seed", 0), 0, "", 0), tuple(body["stop"]))
        sampling = Sampling(*(body[name] for name in ("temperature", "top_k", "top_p", "min_p", "max_tokens")))
        with lock:
            ((_, completion),) = engines[0].generate([request], sampling)
        return {
            "token_ids": list(completion.token_ids), "logprobs": {"token_logprobs": list(completion.logprobs)},
            "finish_reason": completion.finish_reason,
        }  # fmt: skip

    return FakeVLLM(respond=respond, on_load=load)
