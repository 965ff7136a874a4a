"""Rows that are sampled together although they began at different times: each pass reads what is new of every row.

Of a row that joins that is its prompt, or what follows the conversation so far; of one being decoded, its last token.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from grpo_core.algorithms.causal_lm import CausalLM
from grpo_core.engines.conversations import Conversation, ConversationCache, PromptTokens
from grpo_core.engines.decoding import SampledRow, draw
from grpo_sdk.endpoints.base import Sampling

PREFILL_TOKENS = 8192
"""Prompt tokens read in one forward: enough to fill the hardware, and it bounds the activations (an MLP of SmolLM2 on
8,192 tokens takes 50 MiB in float32)."""


@dataclass(slots=True, eq=False)
class _Member:
    """A row that has joined, and the tokens that the next pass reads of it."""

    row: SampledRow
    conversation: Conversation
    new: list[int]


class ContinuousBatch:
    """Rows that are sampled together; those that don't fit wait in order.

    Args:
        parts: The model.
        forward: Hidden states [1, N, D] of tokens [1, N] at positions [1, N], through the cache.
        cache: Where keys and values are.
        sampling: How tokens are drawn.
        eos_ids: Tokens that end a completion.
        max_tokens: Tokens that the prompts and limits of joined rows have together; a larger row goes alone.
        counts: Receives how many tokens of prompts are read.
    """

    def __init__(
        self,
        parts: CausalLM,
        forward: Callable[[Tensor, Tensor], Tensor],
        cache: ConversationCache,
        sampling: Sampling,
        eos_ids: frozenset[int],
        max_tokens: int,
        counts: PromptTokens,
    ) -> None:
        self._parts, self._forward, self._cache = parts, forward, cache
        self._sampling, self._eos_ids, self._max_tokens, self._counts = sampling, eos_ids, max_tokens, counts
        self._waiting: list[SampledRow] = []
        self._joined: list[_Member] = []

    @property
    def is_empty(self) -> bool:
        """Whether no row waits or is sampled."""
        return not self._waiting and not self._joined

    def add(self, row: SampledRow) -> None:
        """Let a row join as soon as it fits."""
        self._waiting.append(row)

    def step(self) -> list[SampledRow]:
        """Sample one token of every row that has joined; return the rows that are finished, and forget them."""
        self._join()
        joined = self._joined
        ids, positions, ends = self._cache.begin([(member.conversation, member.new) for member in joined])
        hidden = self._forward(ids, positions)[0, ends]
        draw(self._parts, hidden, [member.row for member in joined], self._sampling, self._eos_ids)
        for member in joined:
            member.new = [member.row.token_ids[-1]]
        finished = [member for member in joined if member.row.finished is not None]
        self._joined = [member for member in joined if member.row.finished is None]
        for member in finished:
            self._cache.keep(member.conversation)
        return [member.row for member in finished]

    def close(self) -> None:
        """Forget the rows that are not finished."""
        for member in self._joined:
            self._cache.close(member.conversation)
        self._waiting, self._joined = [], []

    def _join(self) -> None:
        held = sum(len(member.row.prompt_ids) + member.row.limit for member in self._joined)
        new = 0
        readers = {member.row.prompt_ids: member.conversation for member in self._joined}
        waiting, self._waiting = self._waiting, []
        while waiting:
            row, prompt_ids = waiting[0], waiting[0].prompt_ids
            room = len(prompt_ids) + row.limit
            known = self._cache.known(row.conversation, prompt_ids)
            reader = None if known else readers.get(prompt_ids)
            if reader is not None:
                known = len(prompt_ids) - 1
            unread = len(prompt_ids) - known
            if self._joined and (held + room > self._max_tokens or new + unread > PREFILL_TOKENS):
                break
            del waiting[0]
            if reader is not None and len(reader.tokens) < len(prompt_ids):
                self._waiting.append(row)  # the next pass finds the prompt read
                continue
            conversation = self._cache.open(row.conversation, prompt_ids, room)
            if reader is not None:
                self._cache.copy(reader, conversation, known)
            if row.conversation is not None:
                self._counts.reused += known
                self._counts.read += unread
            readers.setdefault(prompt_ids, conversation)
            self._joined.append(_Member(row, conversation, list(prompt_ids[known:])))
            held, new = held + room, new + unread
        self._waiting += waiting
