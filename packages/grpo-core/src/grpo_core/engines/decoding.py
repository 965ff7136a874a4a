"""Token ids to text, and the moment a stop string is complete.

A completion stops at its first token after which the decoded text so far contains a stop string. Decoding everything
after each token would cost O(n²), so (1) only a token that can end a stop string is looked at, (2) then only a tail is
decoded, since a stop string that the newest token completes is at the end of the text, and (3) what the tail shows is
confirmed on the whole text, because a tail's left edge may lose a space.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

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
