"""Trackio: local by default (`trackio show` draws it); TRACKIO_SPACE_ID or TRACKIO_SERVER_URL send it elsewhere."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping, Sequence

from grpo_core.tracking.base import Cell, TrackedRun


class Trackio:
    """Logs a run to Trackio.

    Args:
        run: Run to log.
    """

    def __init__(self, run: TrackedRun) -> None:
        import trackio as library

        self._library = library
        with _silenced():
            self._run = library.init(
                project=run.project,
                name=run.name,
                config=dict(run.config),
                resume="allow" if run.is_resumed else "never",
                embed=False,
            )

    def last_step(self) -> int:
        """Last step that Trackio has of a resumed run, or -1: it stores in the background, and a kill loses some."""
        return int(self._run._next_step) - 1

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        """Log numbers."""
        self._run.log(dict(values), step=step)

    def table(self, step: int, name: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        """Log a table."""
        self._run.log({name: self._library.Table(columns=list(columns), data=[list(row) for row in rows])}, step=step)

    def note(self, step: int, text: str) -> None:
        """Raise an alert."""
        with _silenced():
            self._run.alert(title=f"step {step}", text=text, step=step)

    def close(self, *, failed: bool) -> None:
        """Flush and close."""
        with _silenced():
            self._run.finish()


def _silenced() -> contextlib.AbstractContextManager[object]:
    """Suppress Trackio's own messages, which contain control codes."""
    return contextlib.redirect_stdout(io.StringIO())
