"""Where a completion ends in a whole text, for samplers that do not end it as the engines do."""

from __future__ import annotations

from collections.abc import Sequence

from grpo_core.task.marks import END_TOKENS


def cut_at_stop(text: str, stop: Sequence[str]) -> tuple[str, bool]:
    """Cut a text right after the stop string that is complete first; the text keeps it.

    Returns:
        (text, whether a stop string was in it).
    """
    ends = [start + len(string) for string in stop if (start := text.find(string)) >= 0]
    return (text[: min(ends)], True) if ends else (text, False)


def strip_end_tokens(text: str, end_tokens: Sequence[str] = END_TOKENS) -> str:
    """Remove end tokens from the end of a text; white space goes with a token, and stays where there is none."""
    shortened = text
    while True:
        stripped = shortened.rstrip()
        token = next((token for token in end_tokens if stripped.endswith(token)), None)
        if token is None:
            return shortened
        shortened = stripped.removesuffix(token)
