"""Completions that an engine samples. No torch: they cross processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class Completion:
    """Completion of one request.

    Attributes:
        token_ids: Sampled tokens, the end-of-sequence token included: it is a decision of the policy and is trained.
        logprobs: One per token, in nats, under the temperature-scaled distribution before top-k, top-p and min-p.
        text: Decoded without special tokens; it ends right after a stop string, if one ended it.
        finish_reason: `stop` (end of sequence or a stop string) or `length` (truncated).
        policy_version: Version of the weights that sampled every token.
        certainties: Surprisal and entropy of each token, in nats at temperature 1, where they were measured.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    text: str
    finish_reason: FinishReason
    policy_version: int
    certainties: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        if len(self.token_ids) != len(self.logprobs):
            raise ValueError(f"{len(self.token_ids)} token_ids but {len(self.logprobs)} logprobs: give one for each.")
