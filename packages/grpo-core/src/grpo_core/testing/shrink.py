"""Smaller texts for which something still holds, by delta debugging (Zeller and Hildebrandt 2002)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

_TOKEN = re.compile(r"\s+|\w+|[^\w\s]")
_BATCH = 16
"""Texts tried at once: the workers score them side by side, and the first that holds is taken."""


def shrink(text: str, holds: Callable[[Sequence[str]], Sequence[bool]], budget: int) -> str:
    """Remove parts of a text while something still holds: first words and signs, then characters.

    Args:
        text: A text for which it holds.
        holds: For each of some texts, whether it holds.
        budget: Most texts that are tried.

    Returns:
        A text for which it holds; one from which no single part can be removed, if the budget suffices.
    """
    for split in (_TOKEN.findall, list):
        text, budget = _without_parts(split(text), holds, budget)
    return text


def _without_parts(parts: list[str], holds: Callable[[Sequence[str]], Sequence[bool]], budget: int) -> tuple[str, int]:
    size = max(1, len(parts) // 2) if parts else 0
    while size and budget > 0:
        starts = range(0, len(parts), size)
        smaller = _first_that_holds(parts, [(start, start + size) for start in starts], holds, budget)
        budget -= smaller[1]
        if smaller[0] is not None:
            parts = smaller[0]
            size = min(size, len(parts))
        else:
            size //= 2
    return "".join(parts), budget


def _first_that_holds(
    parts: list[str],
    cuts: Sequence[tuple[int, int]],
    holds: Callable[[Sequence[str]], Sequence[bool]],
    budget: int,
) -> tuple[list[str] | None, int]:
    """The parts without one of some ranges, and the number of texts tried."""
    tried = 0
    for first in range(0, len(cuts), _BATCH):
        batch = [parts[:start] + parts[end:] for start, end in cuts[first : first + _BATCH]][: max(0, budget - tried)]
        if not batch:
            break
        tried += len(batch)
        for candidate, kept in zip(batch, holds(["".join(left) for left in batch]), strict=True):
            if kept:
                return candidate, tried
    return None, tried
