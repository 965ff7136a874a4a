"""What servers have in common: completions, weights, adapters and memory, each by requests of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import httpx2

from grpo_core.engines.servers.client import ServerClient
from grpo_core.engines.servers.products import Product
from grpo_sdk.endpoints.base import Request, Sampling
from grpo_sdk.errors import EngineError

SleepLevel = Literal[0, 1, 2]
"""What a server does while the model trains: 0 keeps its memory, 1 keeps the weights' content, 2 drops all."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A completion as a server returned it.

    Attributes:
        token_ids: Its tokens.
        logprobs: Log-prob of each; None where it is not finite.
        finish_reason: Why it ended, in the server's words.
        weight_version: Version of the weights that sampled it; None where the server does not say it.
    """

    token_ids: list[int]
    logprobs: list[float | None]
    finish_reason: str | None
    weight_version: str | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a server; the ranks of a run tell it each other as JSON.

    Attributes:
        served: The server's name for the model.
        max_model_len: Tokens that a prompt and its completion may have together.
        sleep_level: What it does while the model trains.
        logprobs_mode: Which log-probs it returns, in its words; empty where there is one kind.
        note: What the header of a run says of it beside its address and weights.
    """

    served: str
    max_model_len: int
    sleep_level: SleepLevel = 0
    logprobs_mode: str = ""
    note: str = ""


class ServerAPI(ABC):
    """The requests of one kind of server.

    Args:
        client: Makes them.
        facts: What is known of the server.
    """

    product: ClassVar[Product]
    """The server's software."""

    adapter_options: ClassVar[str]
    """How a server is started that takes adapters."""

    def __init__(self, client: ServerClient, facts: Facts) -> None:
        self.client, self.facts = client, facts

    @abstractmethod
    def knows_logprobs(self, sampling: Sampling) -> bool:
        """Whether its log-probs are those of the temperature-scaled distribution before top-k, top-p and min-p."""

    @abstractmethod
    async def complete(
        self,
        session: httpx2.AsyncClient,
        name: str,
        request: Request,
        sampling: Sampling,
        eos_ids: Collection[int],
        seed: int,
    ) -> Reply:
        """Request one completion, leaving nothing to the server's defaults.

        Args:
            session: Result of `ServerClient.session`.
            name: Name of the model or adapter.
            request: The prompt and its limits.
            sampling: How tokens are drawn.
            eos_ids: Tokens that end it.
            seed: Seed of its random numbers; 7 bytes.
        """

    @abstractmethod
    def load_weights(self, folder: Path) -> None:
        """Have all weights read from a folder."""

    @abstractmethod
    def number_weights(self, version: str) -> None:
        """Give the weights that were sent a version; keys and values that others computed are dropped."""

    @abstractmethod
    def weight_version(self) -> str:
        """The version that was given last."""

    def check_version(self, expected: str, found: str | None = None) -> None:
        """Check that nobody else has sent weights.

        Args:
            expected: The version that was given last.
            found: The server's version; None asks for it.

        Raises:
            EngineError: the server has another one.
        """
        found = self.weight_version() if found is None else found
        if found != expected:
            raise EngineError(
                f"{self.client.name} has weights of version {found!r:.80} and not {expected!r}: it was restarted, or "
                "another run uses it. A run needs a server of its own."
            )

    @abstractmethod
    def load_adapter(self, name: str, folder: Path) -> None:
        """Have an adapter read from a folder."""

    @abstractmethod
    def unload_adapter(self, name: str) -> None:
        """Forget an adapter."""

    @abstractmethod
    def sleep(self) -> None:
        """Free memory; see `SleepLevel`."""

    @abstractmethod
    def wake(self, part: Literal["weights", "kv_cache"]) -> None:
        """Take memory back."""
