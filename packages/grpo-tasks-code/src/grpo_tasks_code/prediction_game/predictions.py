"""The integer in what an opponent says."""

from __future__ import annotations

import re

MAX_CHARS = 2_000
"""Of a prediction, what is read; 200 tokens are below."""

_INTEGER = re.compile(
    r"(?<![\w.])(?P<sign>[-\N{MINUS SIGN}]?)(?P<digits>[0-9]{1,3}(?:,[0-9]{3}){1,5}|[0-9]{1,18})(?!\w|[.,][0-9])"
)
"""Not a part of a longer number, of a decimal or of a name; of 5-3 it is 3."""


def predicted(text: str) -> int | None:
    """The last integer of a prediction, if there is one: negative ones too, thousands separated by commas or not."""
    matches = [*_INTEGER.finditer(text[:MAX_CHARS])]
    if not matches:
        return None
    size = int(matches[-1]["digits"].replace(",", ""))
    return -size if matches[-1]["sign"] else size
