"""TensorBoard: event files in `logs/tensorboard/`, written by TensorBoard's own writer, which needs no torch."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from grpo_core.tracking.base import Cell, TrackedRun

FOLDER = "tensorboard"
"""Folder of the event files, inside the run's `logs`; those of a branch are in a folder of its own inside it."""

_MARKDOWN = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~&])")
"""Characters with a meaning in Markdown, which TensorBoard renders."""


class TensorBoard:
    """Logs a run to event files.

    Args:
        run: Run to log.
    """

    def __init__(self, run: TrackedRun) -> None:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._writer = EventFileWriter(str(run.run_dir / "logs" / FOLDER / run.branch))

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        """Log scalars."""
        from tensorboard.compat.proto import summary_pb2

        scalars = [summary_pb2.Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._add(step, summary_pb2.Summary(value=scalars))
        self._writer.flush()  # so that a killed run keeps every finished step

    def table(self, step: int, name: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        """Log a table as two-dimensional text, which TensorBoard draws as a table."""
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


def literal(cell: Cell) -> str:
    """Escape a value for Markdown, on one line."""
    if cell is None:
        return ""
    if isinstance(cell, float):
        return literal(f"{cell:.4g}")
    return _MARKDOWN.sub(r"\\\1", " ⏎ ".join(str(cell).splitlines()))
