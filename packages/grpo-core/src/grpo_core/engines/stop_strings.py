"""Stop strings on a whole text, for samplers that do not apply them as the engines do."""

from __future__ import annotations

from collections.abc import Sequence


def cut_at_stop(text: str, stop: Sequence[str]) -> tuple[str, bool]:
    """Cut a text right after the stop string that is complete first; the text keeps it.

    Returns:
        (text, whether a stop string was in it).
    """
    ends = [start + len(string) for string in stop if (start := text.find(string)) >= 0]
    return (text[: min(ends)], True) if ends else (text, False)
