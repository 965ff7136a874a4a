"""TensorBoard: event files in `logs/tensorboard/`, written with TensorBoard's own writer; it needs no torch."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from grpo_core.tracking.base import Cell, TrackedRun, Tracker

FOLDER = "tensorboard"
"""In the run's folder of logs."""

_MARKDOWN = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~&])")
"""Characters that mean something in Markdown; TensorBoard renders text as such."""


class TensorBoard:
    """Writes one run.

    Args:
        run: The run.
    """

    def __init__(self, run: TrackedRun) -> None:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._writer = EventFileWriter(str(run.run_dir / "logs" / FOLDER))
        # A resumed run logs steps again that were logged before it was stopped: TensorBoard drops what it has from
        # the first step of a new session on, once it is told which that is.
        self._announces_session = run.is_resumed

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        """Log scalars."""
        from tensorboard.compat.proto import event_pb2, summary_pb2

        if self._announces_session:
            start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            self._writer.add_event(event_pb2.Event(wall_time=time.time(), step=step, session_log=start))
            self._announces_session = False
        # Plain scalars, as torch's writer makes them: what TensorBoard drops of an older session is these alone.
        each = [summary_pb2.Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._add(step, summary_pb2.Summary(value=each))
        self._writer.flush()  # a run that is killed leaves every step that it finished

    def table(self, step: int, name: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        """Log a table as text: TensorBoard draws a two-dimensional text as one."""
        import numpy as np
        from tensorboard.plugins.text.summary_v2 import text_pb

        cells = [[f"**{column}**" for column in columns], *([literal(cell) for cell in row] for row in rows)]
        self._add(step, text_pb(name, np.array(cells, dtype=np.object_)))

    def note(self, step: int, text: str) -> None:
        """Log a warning as text."""
        from tensorboard.plugins.text.summary_v2 import text_pb

        self._add(step, text_pb("warnings", literal(text)))

    def close(self, *, failed: bool) -> None:
        """Flush and close the file."""
        self._writer.close()

    def _add(self, step: int, summary: Any) -> None:
        from tensorboard.compat.proto import event_pb2

        self._writer.add_event(event_pb2.Event(wall_time=time.time(), step=step, summary=summary))


def tensorboard(run: TrackedRun) -> Tracker:
    """Open the event file of a run."""
    return TensorBoard(run)


def literal(cell: Cell) -> str:
    """A value as Markdown that renders as the value itself, on one line."""
    if cell is None:
        return ""
    if isinstance(cell, float):
        return literal(f"{cell:.4g}")
    return _MARKDOWN.sub(r"\\\1", " ⏎ ".join(str(cell).splitlines()))
