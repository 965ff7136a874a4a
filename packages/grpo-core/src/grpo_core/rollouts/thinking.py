"""The part of a completion that a reasoning model thinks."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from grpo_sdk.task.marks import first_thinking_end


def think_tokens(tokenizer: Any, text: str, token_ids: Sequence[int]) -> int | None:
    """Tokens of a completion before the first end of thinking, such as `</think>`; None where there is none.

    Args:
        tokenizer: Tokenizer of the model.
        text: The completion.
        token_ids: Its tokens.
    """
    if (before := first_thinking_end(text)) is None:
        return None
    # The text of a prefix grows with its tokens, so the longest one before the tag is found by halving.

    def chars(tokens: int) -> int:
        return len(tokenizer.decode(token_ids[:tokens], skip_special_tokens=True))

    return bisect_right(range(len(token_ids) + 1), before, key=chars) - 1
