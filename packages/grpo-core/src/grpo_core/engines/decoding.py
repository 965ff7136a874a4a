"""Rows of tokens being sampled, token ids to text, and the moment a stop string is complete.

A completion stops at its first token after which the decoded text so far contains a stop string. Decoding everything
after each token would cost O(n²), so (1) only a token that can end a stop string is looked at, (2) then only a tail is
decoded, since a stop string that the newest token completes is at the end of the text, and (3) what the tail shows is
confirmed on the whole text, because a tail's left edge may lose a space.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from grpo_core.algorithms.causal_lm import CausalLM
from grpo_core.engines.sampling import SAMPLE_ELEMENTS, UNIFORM_BLOCK, UniformStream, certainty, sample
from grpo_sdk.endpoints.base import Sampling
from grpo_sdk.endpoints.completion import Completion, FinishReason
from grpo_sdk.task.marks import cut_at_stop

EDGE_CHARACTERS = 16
"""Characters at a tail's left edge that are not relied on: tokenizers strip or add a space where text begins."""

MAX_TOKENS_PER_CHARACTER = 8
"""Bound on a tail, in tokens per character wanted: UTF-8 needs 4 at most, so beyond it are broken bytes or tokens
without text, which must not make every further token slower."""

CONTINUATION_BYTES = 3
"""A character of UTF-8 has at most three bytes after its first."""

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
"""What a character decodes to whose bytes are not all there."""


def eos_ids(model: Any, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Tokens that end a completion: those of the model's generation config and the tokenizer's."""
    named = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    several = named if isinstance(named, list) else [named]
    return frozenset(token for token in (*several, tokenizer.eos_token_id) if token is not None)


class TextDecoder:
    """Decodes as completions are decoded everywhere: no special tokens, no clean-up of spaces."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self.special_ids = frozenset(tokenizer.all_special_ids)

    def __call__(self, token_ids: Sequence[int]) -> str:
        """Return the text of `token_ids`."""
        text = self._tokenizer.decode(list(token_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert isinstance(text, str), "one sequence of ids decodes to one string"
        return text


class StopStrings:
    """The stop strings of some completions, and what is known about tokens that end one."""

    def __init__(self, decode: TextDecoder, stop: Sequence[str]) -> None:
        self.decode = decode
        self.longest = max(map(len, stop), default=0)
        self._stop = tuple(stop)
        self._last = frozenset(text[-1] for text in stop)
        self._can_end: dict[int, bool] = {}

    def can_end(self, token_id: int) -> bool:
        """Whether a stop string may be complete after this token: whether it adds some string's last character.

        A token's own text shows that, except for a space, which decoders strip at the edges, and part of a character.
        """
        known = self._can_end.get(token_id)
        if known is None:
            text = self.decode([token_id])
            known = token_id not in self.decode.special_ids and any(
                last in text or last == " " or (REPLACEMENT in text and not last.isascii()) for last in self._last
            )
            self._can_end[token_id] = known
        return known

    def end(self, text: str) -> int | None:
        """Return the end of the stop string outside thinking that is complete first, or None."""
        cut, is_ended = cut_at_stop(text, self._stop)
        return len(cut) if is_ended else None


class StopMatcher:
    """Watches one completion grow, token by token."""

    def __init__(self, stop: StopStrings) -> None:
        self._stop = stop
        self._wanted = stop.longest + EDGE_CHARACTERS
        self._ids: list[int] = []  # without special tokens, which have no text

    def push(self, token_id: int) -> str | None:
        """Take one more token; return the text up to and including the stop string, if this token completed one."""
        if token_id in self._stop.decode.special_ids:
            return None
        self._ids.append(token_id)
        if not self._stop.can_end(token_id) or self._stop.end(self._tail()) is None:
            return None
        text = self._stop.decode(self._ids)
        end = self._stop.end(text)
        return None if end is None else text[:end]

    def _tail(self) -> str:
        """Decode enough tokens from the end, beginning between characters."""
        length, most = self._wanted, min(len(self._ids), MAX_TOKENS_PER_CHARACTER * self._wanted)
        text = self._stop.decode(self._ids[-length:])
        while len(text) < self._wanted and length < most:
            length *= 2
            text = self._stop.decode(self._ids[-length:])
        for _ in range(CONTINUATION_BYTES):
            if length >= len(self._ids) or not text.startswith(REPLACEMENT):
                break
            length += 1
            text = self._stop.decode(self._ids[-length:])
        return text


@dataclass(slots=True)
class SampledRow:
    """Tokens so far, and what ends it: `limit` tokens, an end token or a stop string.

    Attributes:
        request: Index of the request.
        prompt_ids: Tokens of the prompt.
        limit: Most tokens.
        uniforms: What tokens are drawn with; None is greedy.
        matcher: Finds stop strings; None without any.
        token_ids: Tokens so far.
        logprobs: Their log-probs.
        certainties: Their surprisals and entropies, where they are measured.
        text: The text before a stop string, once there is one.
        conversation: Name under which its keys and values stay; None if they don't.
        finished: Why it has ended; None while it has not.
    """

    request: int
    prompt_ids: tuple[int, ...]
    limit: int
    uniforms: UniformStream | None
    matcher: StopMatcher | None
    conversation: str | None = None
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    certainties: list[Sequence[float]] = field(default_factory=list)
    text: str | None = None
    finished: FinishReason | None = None
    _block: list[float] = field(default_factory=list)

    def uniform(self) -> float:
        """The uniform that draws the next token."""
        return self.block()[len(self.token_ids) % UNIFORM_BLOCK]

    def block(self) -> list[float]:
        """The block of uniforms that the next token's is in; call it once per token."""
        assert self.uniforms is not None, "greedy rows draw nothing"
        if len(self.token_ids) % UNIFORM_BLOCK == 0:
            self._block = self.uniforms.take(UNIFORM_BLOCK).tolist()
        return self._block

    def push(
        self, token_id: int, logprob: float, eos_ids: frozenset[int], measured: Sequence[float] | None = None
    ) -> None:
        """Add a token, and see whether it ends the completion."""
        self.token_ids.append(token_id)
        self.logprobs.append(logprob)
        if measured is not None:
            self.certainties.append(measured)
        if token_id in eos_ids:
            self.finished = "stop"
            return
        if self.matcher is not None:
            self.text = self.matcher.push(token_id)
        if self.text is not None:
            self.finished = "stop"
        elif len(self.token_ids) == self.limit:
            self.finished = "length"

    def completion(self, decode: TextDecoder, eos_ids: frozenset[int], version: int) -> Completion:
        """The completion of a row that is finished."""
        assert self.finished is not None, "only finished rows become completions"
        text = self.text
        if text is None:
            # Some tokenizers do not count a generation config's EOS among their special tokens.
            ended = self.token_ids[-1] in eos_ids
            text = decode(self.token_ids[:-1] if ended else self.token_ids)
        measured = tuple((surprisal, entropy) for surprisal, entropy in self.certainties)
        return Completion(tuple(self.token_ids), tuple(self.logprobs), text, self.finished, version, measured)


Drawn = tuple[int, float, Sequence[float] | None]
"""A token, its log-prob, and its certainty where that is measured."""


def draw(
    parts: CausalLM, hidden: Tensor, rows: Sequence[SampledRow], sampling: Sampling, eos_ids: frozenset[int]
) -> None:
    """Draw a token for every row from its hidden state, [A, D]."""
    u = None
    if not sampling.greedy:
        u = torch.tensor([row.uniform() for row in rows], dtype=torch.float64, device=hidden.device)
    at_once = max(1, SAMPLE_ELEMENTS // parts.model.config.get_text_config(decoder=True).vocab_size)
    drawn: list[Drawn] = []
    for start in range(0, len(rows), at_once):
        at = slice(start, start + at_once)
        logits = parts.logits(hidden[at])
        token, logprob = sample(logits, None if u is None else u[at], sampling)
        measured = certainty(logits, token).tolist() if sampling.certainty else [None] * len(token)
        drawn += zip(token.tolist(), logprob.tolist(), measured, strict=True)
    push(rows, drawn, eos_ids)


def push(rows: Sequence[SampledRow], drawn: Sequence[Drawn], eos_ids: frozenset[int]) -> None:
    """Add a token to every row that is not finished."""
    for row, (token_id, logprob, measured) in zip(rows, drawn, strict=True):
        if row.finished is None:
            row.push(token_id, logprob, eos_ids, measured)
