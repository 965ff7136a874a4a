"""SGLang's server: its requests, and opening one of the run's own or one that runs already."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import httpx2
from pydantic import BaseModel, Field

from grpo_core.engines.base import ONE_PROCESS, Processes, Request, Sampling
from grpo_core.engines.compatibility import max_context
from grpo_core.engines.servers import opening
from grpo_core.engines.servers.api import Facts, Reply, ServerAPI, SleepLevel
from grpo_core.engines.servers.client import ServerClient
from grpo_core.engines.servers.engine import ServerEngine
from grpo_core.engines.servers.model import Gather, TrainedModel
from grpo_core.engines.servers.opening import Count, Models, Seconds, Server
from grpo_core.engines.servers.process import Address, Launch
from grpo_core.engines.servers.products import SGLANG
from grpo_core.errors import UserError

RESERVED_TOKENS = 2
"""Of its context, which SGLang (0.5) never fills: a completion is cut short of it by so much."""

INPUT_MARGIN = 4
"""From the longest prompt that SGLang takes, which it says, to the longest prompt and completion together."""

CACHE_SLACK = 1024
"""Tokens of keys and values beyond those needed, which SGLang keeps in pages."""

TAKEN = frozenset({"--model-path", "--model", "--host", "--port", "--api-key", "--config"})
"""Options that the run sets and relies on."""

NO_SEEDS = "seeds of requests have no effect, unless it is started with --enable-deterministic-inference"


def _port(folder: Path) -> Address:
    """A free port of this machine; as others of it reach the port, requests need a key, which `ps` does not show."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    key, config = secrets.token_urlsafe(32), folder / "key.yaml"
    config.write_text(f"api-key: {key}\n")
    arguments = ("--host", "127.0.0.1", "--port", str(port), "--config", str(config))
    return Address(f"http://127.0.0.1:{port}", arguments, key=key)


LAUNCH = Launch(SGLANG, "sglang.launch_server", "--model-path", _port)


class _FinishReason(BaseModel):
    type: str


class _Meta(BaseModel):
    finish_reason: _FinishReason | None = None
    weight_version: str | None = None
    output_token_logprobs: list[tuple[float | None, int, Any]] = Field(default_factory=list)


class _Generated(BaseModel):
    output_ids: list[int] = Field(default_factory=list)
    meta_info: _Meta


class _ModelInfo(BaseModel):
    weight_version: str | None = None


class _ServerInfo(BaseModel):
    max_req_input_len: int | None = None
    enable_lora: bool | None = None
    enable_memory_saver: bool | None = None
    enable_weights_cpu_backup: bool | None = None
    enable_deterministic_inference: bool | None = None


class SGLangServer(ServerAPI):
    """Requests of SGLang's own interface."""

    product = SGLANG
    adapter_options = "--enable-lora"

    def knows_logprobs(self, sampling: Sampling) -> bool:
        """Always: SGLang's are those after the temperature and before the filters."""
        return True

    async def complete(
        self,
        session: httpx2.AsyncClient,
        name: str,
        request: Request,
        sampling: Sampling,
        eos_ids: Collection[int],
        seed: int,
    ) -> Reply:
        """Request one completion by `/generate`."""
        parameters = {
            "max_new_tokens": request.limit(sampling),
            "temperature": sampling.temperature,
            "top_k": sampling.top_k or -1,
            "top_p": sampling.top_p,
            "min_p": sampling.min_p,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "min_new_tokens": 0,
            "stop": list(request.stop),
            "stop_token_ids": sorted(eos_ids),
            "ignore_eos": False,
            "no_stop_trim": True,
            "skip_special_tokens": False,
            **({} if sampling.greedy else {"sampling_seed": seed}),
        }
        body = {
            "input_ids": list(request.prompt_ids),
            "sampling_params": parameters,
            "return_logprob": True,
            "logprob_start_len": -1,  # of the sampled tokens alone
            "stream": False,
            **({"lora_path": name} if name != self.facts.served else {}),
        }
        generated = await self.client.complete(session, "/generate", body, _Generated)
        meta = generated.meta_info
        logprobs = [value for value, _, _ in meta.output_token_logprobs]
        reason = meta.finish_reason.type if meta.finish_reason else None
        return Reply(generated.output_ids, logprobs, reason, meta.weight_version)

    def load_weights(self, folder: Path) -> None:
        """Have all weights read from a folder; SGLang drops the keys and values that others computed."""
        body = {"model_path": str(folder), "load_format": "auto", "flush_cache": True}
        self.client.post("/update_weights_from_disk", body)

    def number_weights(self, version: str) -> None:
        """Give the weights a version."""
        self.client.post("/update_weight_version", {"new_version": version})

    def weight_version(self) -> str:
        """The version that was given last."""
        return self.client.get("/model_info", _ModelInfo).weight_version or ""

    def load_adapter(self, name: str, folder: Path) -> None:
        """Have an adapter read from a folder."""
        self.client.post("/load_lora_adapter", {"lora_name": name, "lora_path": str(folder)})

    def unload_adapter(self, name: str) -> None:
        """Forget an adapter."""
        self.client.post("/unload_lora_adapter", {"lora_name": name})

    def sleep(self) -> None:
        """Free memory; whether weights keep their content is an option of the server."""
        self.client.post("/release_memory_occupation", {"tags": ["kv_cache", "weights"]})

    def wake(self, part: Literal["weights", "kv_cache"]) -> None:
        """Take memory back."""
        self.client.post("/resume_memory_occupation", {"tags": [part]})


def open_sglang(
    model: Any,
    tokenizer: Any,
    *,
    max_batch_tokens: int,
    precision: str,
    is_quantized: bool = False,
    processes: Processes = ONE_PROCESS,
    gather: Gather | None = None,
    url: str | None = None,
    shared_dir: str | None = None,
    sleep: bool | None = None,
    max_model_len: Count | None = None,
    tensor_parallel_size: Count = 1,
    options: str = "",
    timeout_s: Seconds = opening.TIMEOUT_S,
    start_timeout_s: Seconds = opening.START_TIMEOUT_S,
) -> ServerEngine:
    """SGLang, in a server of the run's own or at `engine.url`; sends it the weights after every update.

    Args:
        model: The model in training, with an adapter or without.
        tokenizer: Its tokenizer.
        max_batch_tokens: Tokens of keys and values that a server of the run's own has room for.
        precision: Floating-point type in which such a server computes.
        is_quantized: Whether the base of the adapter is quantized.
        processes: The ranks of the run, which share the server.
        gather: Makes the weights whole where the ranks share the model.
        url: Address of a server that runs already; None starts one.
        shared_dir: Folder that a server elsewhere sees, too, for files of weights.
        sleep: Whether the server's memory is freed while the model trains; None does so for its own on an accelerator.
        max_model_len: Tokens of prompt and completion together; None is the model's context or `max_batch_tokens`.
        tensor_parallel_size: Accelerators of the run's own server.
        options: More options of `sglang.launch_server` for it, as on a command line.
        timeout_s: Limit of one completion.
        start_timeout_s: Limit of the start of a server.

    Raises:
        UserError: SGLang is not installed, a setting does not fit, or SGLang cannot apply the adapter.
        EngineError: the server does not start or does not answer.
    """
    trained = TrainedModel(model, tokenizer, gather)
    opening.check(SGLANG, trained, is_quantized=is_quantized)
    opening.check_address(url, bool(options or max_model_len) or tensor_parallel_size > 1)
    choices = _Choices(trained, sleep, max_model_len, tensor_parallel_size, options)

    def find(state: Mapping[str, Any] | None, opened: ExitStack) -> Server:
        if url is not None:
            client = ServerClient(SGLANG, url, timeout_s=timeout_s)
            opening.check_up(client)
            return _server(client, trained, sleeps=bool(sleep))
        arguments = choices.arguments(max_batch_tokens, precision)
        limits = (timeout_s, start_timeout_s)
        client, start_s = opening.start(LAUNCH, trained, state, arguments, opened, timeouts_s=limits)
        return _server(client, trained, sleeps=choices.sleeps, start_s=start_s)

    return opening.open_server(
        SGLangServer, trained, processes, find, is_own=url is None, shared_dir=shared_dir, timeout_s=timeout_s
    )


@dataclass(frozen=True, slots=True)
class _Choices:
    """Settings of a server of the run's own; see `open_sglang`."""

    trained: TrainedModel
    sleep: bool | None
    max_model_len: int | None
    tensor_parallel_size: int
    options: str

    @property
    def sleeps(self) -> bool:
        """Whether the server's memory is freed while the model trains."""
        return bool(self.trained.device.type == "cuda" if self.sleep is None else self.sleep)

    def arguments(self, max_batch_tokens: int, precision: str) -> list[str]:
        """Options of `sglang.launch_server`."""
        length = opening.context_length(self.trained, self.max_model_len, max_batch_tokens)
        most = max_context(self.trained.inner) or opening.UNKNOWN_LENGTH
        context = max(length, min(length + RESERVED_TOKENS, most))  # SGLang refuses more than the model's
        arguments = ["--dtype", precision, "--context-length", str(context)]
        arguments += ["--max-total-tokens", str(max(length, max_batch_tokens) + CACHE_SLACK)]
        arguments += ["--log-level-http", "warning"]
        if self.tensor_parallel_size > 1:
            arguments += ["--tensor-parallel-size", str(self.tensor_parallel_size)]
        if self.trained.device.type == "cpu":
            arguments += ["--device", "cpu"]
        if self.trained.is_adapter:
            arguments += ["--enable-lora", "--max-lora-rank", str(self.trained.adapter_rank)]
            arguments += ["--lora-target-modules", *self.trained.adapter_targets, "--max-loras-per-batch", "2"]
        if self.sleeps:
            arguments.append("--enable-memory-saver")
            if self.trained.is_adapter:  # nobody sends the base again
                arguments.append("--enable-weights-cpu-backup")
        return [*arguments, *opening.split_options(self.options, TAKEN)]


def _server(client: ServerClient, trained: TrainedModel, *, sleeps: bool, start_s: float | None = None) -> Server:
    """A server that is up, by what it says of itself."""
    served = client.get("/v1/models", Models).data[0]
    info = client.get("/server_info", _ServerInfo)
    if trained.is_adapter and info.enable_lora is False:
        raise UserError(
            f"{client.name} takes no adapters; start it with --enable-lora --max-lora-rank {trained.adapter_rank} "
            f"--lora-target-modules {' '.join(trained.adapter_targets)}."
        )
    if sleeps and not info.enable_memory_saver:
        raise UserError(f"engine.args.sleep: {client.name} cannot; start it with --enable-memory-saver.")
    if sleeps and trained.is_adapter and not info.enable_weights_cpu_backup:
        raise UserError(
            f"engine.args.sleep with an adapter: {client.name} would lose the base; start it with "
            "--enable-weights-cpu-backup."
        )
    level: SleepLevel = 0 if not sleeps else 1 if trained.is_adapter else 2
    context = (served.max_model_len or opening.UNKNOWN_LENGTH) - RESERVED_TOKENS
    length = context if info.max_req_input_len is None else min(context, info.max_req_input_len + INPUT_MARGIN)
    note = "" if info.enable_deterministic_inference else NO_SEEDS
    api = SGLangServer(client, Facts(served.id, length, level, note=note))
    _check_versions(api)
    return Server(api, start_s=start_s)


def _check_versions(api: SGLangServer) -> None:
    if not api.weight_version():
        raise UserError(
            f"{api.client.name} does not number its weights: it is older than SGLang {SGLANG.since}. Update it."
        )
