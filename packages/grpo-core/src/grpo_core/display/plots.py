"""Small plots in text: blocks on one line, and curves with axes in braille dots."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from html import escape

BLOCKS = "▁▂▃▄▅▆▇█"

SPARKLINE_WIDTH = 40
"""Columns of a series at most; a longer one shows means over equal spans."""

GAP = " "
"""Shown where nothing was measured."""

BRAILLE = 0x2800
"""Code point of the empty braille pattern."""

DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bits of a braille pattern by row and column."""

MARK, WHISKER = "●", "│"
"""A marked point, and the interval around it."""

Point = tuple[float, float]
"""Step and value."""

Mark = tuple[float, float, float, float]
"""Step, value, and the ends of its interval, which may be NaN."""


def sparkline(values: Sequence[float | None]) -> str:
    """Draw a series as blocks scaled from its lowest to its highest value; None is where nothing was measured."""
    count = min(SPARKLINE_WIDTH, len(values))
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


def curve(points: Sequence[Point], width: int, height: int, marks: Sequence[Mark] = ()) -> list[str]:
    """Draw a curve with the range of its values on the left and that of its steps below.

    Args:
        points: The curve, by step.
        width: Columns of the picture.
        height: Its lines, with the line of the steps.
        marks: Points that are drawn above the curve, each with its interval.

    Returns:
        The lines, none where there is nothing to draw.
    """
    points, marks, (first, last), (low, high) = _drawn(points, marks)
    if not points and not marks:
        return []
    labels = axis_labels(low, high)
    margin = max(map(len, labels)) + 1
    canvas = _Canvas(max(2, width - margin), max(1, height - 1), (first, last), (low, high))
    canvas.line(points)
    for mark in marks:
        canvas.mark(*mark)
    heads = [labels[1], *[""] * (canvas.height - 2), labels[0]] if canvas.height > 1 else [labels[1]]
    lines = [f"{head:>{margin - 1}} {row}" for head, row in zip(heads, canvas.rows(), strict=True)]
    ends = f"{first:g}", f"{last:g}"
    below = ends[0] + ends[1].rjust(canvas.width - len(ends[0])) if first < last else ends[0]
    return [*lines, " " * margin + below]


def svg_curve(title: str, points: Sequence[Point], marks: Sequence[Mark] = ()) -> str:
    """Draw a curve as SVG for a page of either brightness; empty where there is nothing to draw.

    Args:
        title: Heading, which is escaped.
        points: The curve, by step.
        marks: Points that are drawn above the curve, each with its interval.
    """
    points, marks, (first, last), (low, high) = _drawn(points, marks)
    if not points and not marks:
        return ""

    def at(step: float, value: float) -> tuple[float, float]:
        x = (step - first) / (last - first) if last > first else 0.5
        return 60 + 520 * x, 30 + 140 * (high - value) / (high - low)

    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*point) for point in points))
    parts = [f'<polyline points="{line}" fill="none" stroke="#1f77b4" stroke-width="1.5"/>']
    for step, value, *ends in marks:
        x, y = at(step, value)
        if all(map(math.isfinite, ends)):
            bottom, top = (at(step, end)[1] for end in ends)
            parts.append(f'<path d="M{x:.1f} {bottom:.1f}V{top:.1f}" stroke="#d62728"/>')
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="#d62728"/>')
    labels = axis_labels(low, high)
    texts = ((60, 18, "start", title), (52, 34, "end", labels[1]), (52, 174, "end", labels[0]),
             (60, 190, "start", f"{first:g}"), (580, 190, "end", f"{last:g}"))  # fmt: skip
    parts += [f'<text x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>' for x, y, anchor, text in texts]
    frame = '<path d="M60 30V170H580" fill="none" stroke="currentColor" opacity=".4"/>'
    style = 'style="max-width: 600px; font: 12px sans-serif; fill: currentColor"'
    return f'<svg viewBox="0 0 600 200" {style} role="img" aria-label="{escape(title)}">{frame}{"".join(parts)}</svg>'


def axis_labels(low: float, high: float) -> tuple[str, str]:
    """Format the ends of a range with as many digits as tell them apart."""
    for digits in range(3, 8):
        labels = f"{low:.{digits}g}", f"{high:.{digits}g}"
        if labels[0] != labels[1]:
            break
    return labels


def _drawn(points: Sequence[Point], marks: Sequence[Mark]) -> tuple[list[Point], list[Mark], Point, Point]:
    """The points and marks that are finite, and the ranges of their steps and of their values.

    The range of a constant is widened, so that the curve is in the middle.
    """
    points = [point for point in points if math.isfinite(point[1])]
    marks = [mark for mark in marks if math.isfinite(mark[1])]
    steps = [step for step, *_ in (*points, *marks)] or [0.0]
    values = [value for _, value in points] + [end for _, *ends in marks for end in ends if math.isfinite(end)]
    low, high = min(values, default=0.0), max(values, default=0.0)
    if low == high:
        wider = abs(low) / 10 or 1.0
        low, high = max(low - wider, -sys.float_info.max), min(high + wider, sys.float_info.max)
    return points, marks, (min(steps), max(steps)), (low, high)


class _Canvas:
    """Characters of two by four dots.

    Args:
        width: Columns.
        height: Lines.
        steps: First and last step.
        values: Lowest and highest value.
    """

    def __init__(self, width: int, height: int, steps: Point, values: Point) -> None:
        self.width, self.height = width, height
        self._steps, self._values = steps, values
        self._bits = [[0] * width for _ in range(height)]
        self._marks: dict[tuple[int, int], str] = {}

    def line(self, points: Sequence[Point]) -> None:
        """Connect points by dots, those of each column of dots first put together in their mean."""
        columns: dict[int, list[float]] = {}
        for step, value in points:
            columns.setdefault(self._column(step, 2 * self.width), []).append(value)
        means = {x: sum(value / len(values) for value in values) for x, values in sorted(columns.items())}
        dots = [(x, self._row(mean, 4 * self.height)) for x, mean in means.items()]
        for (x0, y0), (x1, y1) in zip(dots, dots[1:] or dots, strict=False):
            count = max(abs(x1 - x0), abs(y1 - y0), 1)
            for i in range(count + 1):
                x, y = round(x0 + (x1 - x0) * i / count), round(y0 + (y1 - y0) * i / count)
                self._bits[y // 4][x // 2] |= DOTS[y % 4][x % 2]

    def mark(self, step: float, value: float, low: float, high: float) -> None:
        """Draw a point with its interval."""
        x = self._column(step, self.width)
        if math.isfinite(low) and math.isfinite(high):
            for y in range(self._row(high, self.height), self._row(low, self.height) + 1):
                self._marks.setdefault((y, x), WHISKER)
        self._marks[self._row(value, self.height), x] = MARK

    def rows(self) -> list[str]:
        """The lines of the picture."""
        return [
            "".join(
                self._marks.get((y, x)) or (chr(BRAILLE + bits) if bits else " ")  # an empty pattern may look like dots
                for x, bits in enumerate(row)
            )
            for y, row in enumerate(self._bits)
        ]

    def _column(self, step: float, count: int) -> int:
        first, last = self._steps
        return round((step - first) / (last - first) * (count - 1)) if last > first else 0

    def _row(self, value: float, count: int) -> int:
        scale = max(map(abs, self._values))  # without it the difference of large numbers overflows
        low, high = (bound / scale for bound in self._values)
        row = round((high - value / scale) / (high - low) * (count - 1))
        return min(max(row, 0), count - 1)  # the mean of equal values may differ from them in its last bit
