"""Progress in a notebook: lines, a table and a curve, redrawn in the output of the cell."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from html import escape
from itertools import count
from typing import TYPE_CHECKING, Any

from rich.text import Text

from grpo_core.display.plots import Mark, Point, curve, svg_curve
from grpo_core.display.results import as_html, as_text, history_table
from grpo_core.tracking.live import Evaluated, Series
from grpo_sdk.display.text import err

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

WIDTH = 100
"""Columns; a notebook has no width of its own."""

MAX_LINES = 200
"""Lines that are kept, each of which is sent to the browser with every change."""

TABLED = ("reward", "solved_rate", "frac_reward_zero_std", "completions/mean_length", "kl", "entropy", "abstained")
"""Metrics of the table, those of them that the run logs."""

CURVE_COLUMNS, CURVE_LINES = 72, 10
"""Size of the curve where a notebook shows text."""

_numbers = count()


def is_notebook() -> bool:
    """Whether this process is the kernel of a notebook: Jupyter, Colab, VS Code, Databricks."""
    from rich.console import Console

    return Console().is_jupyter


class NotebookConsole:
    """Prints as a rich console does, into one block of a cell's output, with the live line at its end.

    Needs IPython alone and no widgets, which are not installed everywhere.
    """

    is_terminal, is_dumb_terminal, width = True, False, WIDTH

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=MAX_LINES)
        self._live = ""
        self._panel: RunPanel | None = None
        self._id: str | None = None

    def print(self, text: Text, *, soft_wrap: bool = False) -> None:
        """Add a line, or several."""
        self._lines.extend(text.plain.split("\n"))
        self._show()

    def start(self) -> None:
        """Begin a live line: nothing until it has a text."""

    def update(self, text: Text, *, refresh: bool = True) -> None:
        """Replace the live line."""
        self._live = text.plain
        self._show()

    def stop(self) -> None:
        """Remove the live line."""
        self._live = ""
        self._show()

    def show_panel(self, panel: RunPanel) -> None:
        """Show the table and the curve of a run below the lines."""
        self._panel = panel
        self._show()

    def _show(self) -> None:
        from IPython.display import display, update_display

        text = "\n".join([*self._lines, *([self._live] if self._live else [])])
        # Not white-space: pre, which would scroll sideways in a narrow window.
        html = f'<pre style="white-space: pre-wrap; margin: 0">{escape(text)}</pre>'
        if self._panel is not None:
            text, html = f"{text}\n\n{self._panel.text()}", html + self._panel.html()
        content: dict[str, Any] = {"text/plain": text, "text/html": html}
        if self._id is None:
            self._id = f"grpo-progress-{id(self)}-{next(_numbers)}"
            display(content, raw=True, display_id=self._id)
        else:
            update_display(content, raw=True, display_id=self._id)


class RunPanel:
    """Table and curve of a run that goes on, in bounded size."""

    def __init__(self) -> None:
        self._series: dict[str, Series] = {}
        self._evaluations: dict[str, list[Mark]] = {}

    def add_step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add the metrics of a step."""
        for name in TABLED:
            if math.isfinite(metrics.get(name, math.nan)):
                self._series.setdefault(name, Series()).add(step, metrics[name])

    def add_evaluation(self, step: int, task: str, result: Mapping[str, Any]) -> None:
        """Add a held-out evaluation."""
        evaluated = Evaluated.of(step, result)
        if math.isfinite(evaluated.value):
            self._evaluations.setdefault(task, []).append(evaluated)

    def text(self) -> str:
        """The table, and the curve in braille dots."""
        if not self._series:
            return ""
        points, marks = self._learning()
        picture = curve(points, CURVE_COLUMNS, CURVE_LINES, marks)
        return "\n".join([as_text(self._table()), *picture])

    def html(self) -> str:
        """The table, and the curve as SVG."""
        if not self._series:
            return ""
        return as_html(self._table()) + svg_curve("solved, by step", *self._learning())

    def _learning(self) -> tuple[Sequence[Point], Sequence[Mark]]:
        """The curve of the solved rate; the evaluations of a run with one task are marked on it."""
        marks = next(iter(self._evaluations.values())) if len(self._evaluations) == 1 else []
        return (self._series["solved_rate"].points if "solved_rate" in self._series else []), marks

    def _table(self) -> Table:
        points = {name: series.points for name, series in self._series.items()}
        return history_table({name: [(int(step), value) for step, value in each] for name, each in points.items()})


def progress_console() -> Console | NotebookConsole:
    """Where progress is shown: in the cell's output in a notebook, else on stderr."""
    return NotebookConsole() if is_notebook() else err()
