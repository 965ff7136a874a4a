"""The requests of vLLM's server: completions, weights, adapters and memory."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import httpx2
from pydantic import BaseModel, Field

from grpo_core.engines.servers.client import ServerClient
from grpo_sdk.endpoints.base import Request, Sampling
from grpo_sdk.errors import EngineError

LEAST_LOGPROB = -9000.0
"""vLLM writes log-probs that are not finite as -9999."""

SleepLevel = Literal[0, 1, 2]
"""What the server does while the model trains: 0 keeps its memory, 1 keeps the weights' content, 2 drops all."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A completion as the server returned it.

    Attributes:
        token_ids: Its tokens.
        logprobs: Log-prob of each; None where it is not finite.
        finish_reason: Why it ended, in its words.
    """

    token_ids: list[int]
    logprobs: list[float | None]
    finish_reason: str | None


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of the server; the ranks of a run tell it each other as JSON.

    Attributes:
        served: The server's name for the model.
        max_model_len: Tokens that a prompt and its completion may have together.
        sleep_level: What it does while the model trains.
        logprobs_mode: Which log-probs it returns, in its words.
    """

    served: str
    max_model_len: int
    sleep_level: SleepLevel
    logprobs_mode: str


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


class VLLMServer:
    """Requests of vLLM's OpenAI-compatible server and of its development mode.

    Args:
        client: Makes them.
        facts: What is known of the server.
    """

    def __init__(self, client: ServerClient, facts: Facts) -> None:
        self.client, self.facts = client, facts

    def knows_logprobs(self, sampling: Sampling) -> bool:
        """Whether its log-probs are those of the temperature-scaled distribution before top-k, top-p and min-p.

        As `--logprobs-mode` says: raw ones are before the temperature, processed ones after the filters.
        """
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
        """Request one completion by `/v1/completions`, leaving nothing to the server's defaults.

        Args:
            session: Result of `ServerClient.session`.
            name: Name of the model or adapter.
            request: The prompt and its limits.
            sampling: How tokens are drawn.
            eos_ids: Tokens that end it.
            seed: Seed of its random numbers; 7 bytes.
        """
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
        path = "/reset_prefix_cache?reset_running_requests=true"
        if not self.client.ask(path, _Cleared, method="POST").success:
            raise EngineError(f"{self.client.name} keeps keys and values of the weights before: requests are running.")
        self.client.post("/update_weight_version", {"new_version": version})

    def weight_version(self) -> str:
        """The version that was given last."""
        return self.client.ask("/weight_info", _WeightInfo).weight_version

    def check_version(self, expected: str) -> None:
        """Check that nobody else has sent weights since those of a version were.

        Raises:
            EngineError: the server has another version.
        """
        if (found := self.weight_version()) != expected:
            raise EngineError(
                f"{self.client.name} has weights of version {found!r:.80} and not {expected!r}: it was restarted, or "
                "another run uses it. A run needs a server of its own."
            )

    def load_adapter(self, name: str, folder: Path) -> None:
        """Have an adapter read from a folder."""
        self.client.post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(folder)})

    def unload_adapter(self, name: str) -> None:
        """Forget an adapter."""
        self.client.post("/v1/unload_lora_adapter", {"lora_name": name})

    def sleep(self) -> None:
        """Free memory; see `SleepLevel`."""
        self.client.post(f"/sleep?level={self.facts.sleep_level}")

    def wake(self, part: Literal["weights", "kv_cache"]) -> None:
        """Take memory back."""
        self.client.post(f"/wake_up?tags={part}")
