"""Reads the integer in an opponent's prediction."""

from __future__ import annotations

import re

MAX_CHARS = 2_000
"""Characters of a prediction that are read; 200 tokens are fewer."""

_INTEGER = re.compile(
    r"(?<![\w.])(?P<sign>[-\N{MINUS SIGN}]?)(?P<digits>[0-9]{1,3}(?:,[0-9]{3}){1,5}|[0-9]{1,18})(?!\w|[.,][0-9])"
)
"""An integer that is not part of a longer number, a decimal or a name; in 5-3 it is 3."""


def predicted(text: str) -> int | None:
    """Return the last integer of a prediction, if any; it may be negative and have commas between thousands."""
    matches = [*_INTEGER.finditer(text[:MAX_CHARS])]
    if not matches:
        return None
    size = int(matches[-1]["digits"].replace(",", ""))
    return -size if matches[-1]["sign"] else size
