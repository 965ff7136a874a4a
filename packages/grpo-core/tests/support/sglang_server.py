"""A server with the requests of SGLang that the engine makes; a function or a real model makes completions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vllm_server import EOS, SEVEN, NativeModel, Reply

PARAMETERS = {
    "max_new_tokens", "stop", "stop_token_ids", "temperature", "top_p", "top_k", "min_p", "frequency_penalty",
    "presence_penalty", "repetition_penalty", "min_new_tokens", "ignore_eos", "skip_special_tokens", "no_stop_trim",
    "sampling_seed",
}  # fmt: skip
"""Of SGLang's SamplingParams, which refuses others."""


def generated(token_ids: list[int], *, logprob: float | None = -1.0, finish: str | None = "stop") -> dict[str, Any]:
    """A completion as `/generate` replies with it."""
    reason = None if finish is None else {"type": finish}
    logprobs = [[logprob, token, None] for token in token_ids]
    return {
        "text": "", "output_ids": token_ids, "meta_info": {"finish_reason": reason, "output_token_logprobs": logprobs},
    }  # fmt: skip


def ends_at_once(server: FakeSGLang, body: dict[str, Any]) -> dict[str, Any]:
    """A completion of one letter, and the end."""
    fits = body["sampling_params"]["max_new_tokens"] > 1
    return generated([SEVEN, EOS] if fits else [SEVEN], finish="stop" if fits else "length")


@dataclass
class FakeSGLang:
    """State of a server.

    Attributes:
        respond: Makes the completion of a request.
        key: Key that requests need.
        info: Fields of `/server_info`.
        context: Tokens of its context.
        adapters: Name -> folder.
        folder: Weights that were loaded last.
        loaded: Names of the files of each folder of weights or adapter, in order.
        released: Parts of the memory that are given back.
        seen: Path and body of every request but those for the health.
    """

    respond: Callable[[FakeSGLang, dict[str, Any]], dict[str, Any]] = ends_at_once
    key: str | None = None
    info: dict[str, Any] = field(default_factory=lambda: {"enable_lora": False})
    context: int = 512
    version: str = "default"
    folder: str = ""
    loaded: list[list[str]] = field(default_factory=list)
    adapters: dict[str, str] = field(default_factory=dict)
    released: set[str] = field(default_factory=set)
    seen: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    on_load: Callable[[str], None] = lambda folder: None
    url: str = ""

    def paths(self) -> list[str]:
        return [path for path, _ in self.seen]

    def completions(self) -> list[dict[str, Any]]:
        return [body for path, body in self.seen if path == "/generate"]

    def answer(self, path: str, body: dict[str, Any]) -> Reply:
        if path == "/health":
            return 200, None
        self.seen.append((path, body))
        handlers = {
            "/v1/models": lambda body: (200, {"data": [{"id": "served", "max_model_len": self.context}]}),
            "/model_info": lambda body: (200, {"weight_version": self.version}),
            "/server_info": lambda body: (200, {"max_req_input_len": self.context - 6, **self.info}),
            "/generate": self._generate,
            "/update_weights_from_disk": self._update,
            "/update_weight_version": self._number,
            "/load_lora_adapter": self._load_adapter,
            "/unload_lora_adapter": self._unload_adapter,
            "/release_memory_occupation": self._release,
            "/resume_memory_occupation": self._resume,
        }
        return handlers[path](body) if path in handlers else (404, {"detail": "Not Found"})

    def _generate(self, body: dict[str, Any]) -> Reply:
        parameters = body["sampling_params"]
        if unknown := parameters.keys() - PARAMETERS:
            return 400, {"error": {"message": f"Unexpected keyword argument {sorted(unknown)}"}}
        if self.released:
            return 500, {"error": {"message": f"released: {sorted(self.released)}"}}
        if "lora_path" in body and body["lora_path"] not in self.adapters:
            return 400, {
                "error": {"message": f"The following requested LoRA adapters are not loaded: {body['lora_path']}"}
            }
        room = self.context - 2 - len(body["input_ids"])
        parameters = {**parameters, "max_new_tokens": min(parameters["max_new_tokens"], room)}
        limited = {**body, "sampling_params": parameters}
        reply = self.respond(self, limited)
        reply["meta_info"].setdefault("weight_version", self.version)
        return 200, reply

    def _update(self, body: dict[str, Any]) -> Reply:
        path = Path(body["model_path"])
        if "weights" in self.released or not path.is_dir():
            return 400, {"success": False, "message": f"Failed to get weights iterator: {path}"}
        self._load(str(path))
        return 200, {"success": True, "message": "Succeeded to update model weights."}

    def _number(self, body: dict[str, Any]) -> Reply:
        self.version = body["new_version"]
        return 200, {"success": True, "new_version": self.version}

    def _load_adapter(self, body: dict[str, Any]) -> Reply:
        if not self.info["enable_lora"]:
            return 400, {"success": False, "error_message": "LoRA is not enabled."}
        self._load(body["lora_path"])
        self.adapters[body["lora_name"]] = body["lora_path"]
        return 200, {"success": True}

    def _unload_adapter(self, body: dict[str, Any]) -> Reply:
        gone = self.adapters.pop(body["lora_name"], None)
        return (400, {"success": False}) if gone is None else (200, {"success": True})

    def _release(self, body: dict[str, Any]) -> Reply:
        self.released |= set(body["tags"])
        return 200, None

    def _resume(self, body: dict[str, Any]) -> Reply:
        self.released -= set(body["tags"])
        return 200, None

    def _load(self, folder: str) -> None:
        self.folder = folder
        self.loaded.append(sorted(file.name for file in Path(folder).iterdir()))
        self.on_load(folder)


def native_answers(tokenizer: Any) -> FakeSGLang:
    """A server that loads the weights that it is sent with transformers, and samples with our own engine."""
    model = NativeModel(tokenizer)

    def respond(fake: FakeSGLang, body: dict[str, Any]) -> dict[str, Any]:
        given = body["sampling_params"]
        sampling = [
            given["temperature"], max(0, given["top_k"]), given["top_p"], given["min_p"], given["max_new_tokens"],
        ]  # fmt: skip
        completion = model.complete(body["input_ids"], given.get("sampling_seed", 42), given["stop"], *sampling)
        reply = generated(list(completion.token_ids), finish=completion.finish_reason)
        pairs = zip(completion.logprobs, completion.token_ids, strict=True)
        reply["meta_info"]["output_token_logprobs"] = [[logprob, token, None] for logprob, token in pairs]
        return reply

    return FakeSGLang(respond=respond, on_load=model.load)
