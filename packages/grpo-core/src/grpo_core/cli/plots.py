"""Small plots in text: a line of blocks per series."""

from __future__ import annotations

from collections.abc import Sequence

BLOCKS = "▁▂▃▄▅▆▇█"

GAP = " "
"""Where nothing was measured."""


def sparkline(values: Sequence[float | None], width: int = 40) -> str:
    """A series as blocks from its lowest value to its highest; of more than `width` values, the means of equal spans.

    Args:
        values: None where there is none.
        width: Most columns.
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
        # A flat series lies in the middle: it is neither at its lowest nor at its highest.
        return BLOCKS[round((mean - low) / (high - low) * top) if high > low else top // 2]

    return "".join(GAP if mean is None else block(mean) for mean in means)


def _mean(span: Sequence[float | None]) -> float | None:
    known = [value for value in span if value is not None]
    return sum(known) / len(known) if known else None
