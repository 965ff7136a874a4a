"""Small text plots: one line of blocks per series."""

from __future__ import annotations

from collections.abc import Sequence

BLOCKS = "▁▂▃▄▅▆▇█"

GAP = " "
"""Shown where nothing was measured."""


def sparkline(values: Sequence[float | None], width: int = 40) -> str:
    """Draw a series as blocks scaled from its lowest to its highest value.

    Args:
        values: Values of the series; None where nothing was measured.
        width: Largest number of columns; a longer series shows means over equal spans.
    """
    count = min(width, len(values))
    spans = [values[len(values) * i // count : len(values) * (i + 1) // count] for i in range(count)]
    means = [_mean(span) for span in spans]
    known = [mean for mean in means if mean is not None]
    if not known:
        return GAP * count
    low, high = min(known), max(known)
    top = len(BLOCKS) - 1

    def block(mean: float) -> str:
        # A constant series is drawn in the middle.
        return BLOCKS[round((mean - low) / (high - low) * top) if high > low else top // 2]

    return "".join(GAP if mean is None else block(mean) for mean in means)


def _mean(span: Sequence[float | None]) -> float | None:
    known = [value for value in span if value is not None]
    return sum(known) / len(known) if known else None
