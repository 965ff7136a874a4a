"""Progress in a notebook: one block of text, redrawn in the output of the cell."""

from __future__ import annotations

from collections import deque
from html import escape
from itertools import count
from typing import TYPE_CHECKING, Any

from rich.text import Text

from grpo_core.display.text import err

if TYPE_CHECKING:
    from rich.console import Console

WIDTH = 100
"""Columns; a notebook has no width of its own."""

MAX_LINES = 200
"""Lines that are kept, each of which is sent to the browser with every change."""

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

    def _show(self) -> None:
        from IPython.display import display, update_display

        text = "\n".join([*self._lines, *([self._live] if self._live else [])])
        # Not white-space: pre, which would scroll sideways in a narrow window.
        html = f'<pre style="white-space: pre-wrap; margin: 0">{escape(text)}</pre>'
        content: dict[str, Any] = {"text/plain": text, "text/html": html}
        if self._id is None:
            self._id = f"grpo-progress-{id(self)}-{next(_numbers)}"
            display(content, raw=True, display_id=self._id)
        else:
            update_display(content, raw=True, display_id=self._id)


def progress_console() -> Console | NotebookConsole:
    """Where progress is shown: in the cell's output in a notebook, else on stderr."""
    return NotebookConsole() if is_notebook() else err()
