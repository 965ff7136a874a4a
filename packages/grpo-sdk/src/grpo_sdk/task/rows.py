"""The rows of a task: loaded, checked, and read back from JSON."""

from __future__ import annotations

import glob
import math
import time
from collections.abc import Collection, Iterable, Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from grpo_sdk.errors import MAX_NAME_CHARS, DataError, RowError, UserError, near_match
from grpo_sdk.paths import kind_of, user_path
from grpo_sdk.task.calling import call_by_name, errors_named
from grpo_sdk.task.row import MAX_ROWS, Row, Split, TaskConfig, first_problem
from grpo_sdk.task.task import Task
from grpo_sdk.task.watching import calling, watcher

SPLIT_IN_PATH = "{split}"
"""In a path, it stands for the name of the split."""

REPORT_S = 0.1
"""Shortest time between reports of rows that are loaded."""

MANY_ROWS = 1_000_000
"""Rows from which on the option that limits them is named."""

_END = object()


class RowLoader:
    """Loads the rows of a task and refuses those that would break later.

    Args:
        task: The task.
        name: Full name of the task, for messages.
        config: Options of the task.
    """

    def __init__(self, task: Task, name: str, config: TaskConfig) -> None:
        self._task, self._name, self._config = task, name, config
        self._row_type = task.row_type()

    def load(self, spec: str, limit: int | None = None) -> tuple[Row, ...]:
        """Load every row of the configured split and size.

        Args:
            spec: Spec of the task, for messages.
            limit: Number of rows after which loading stops; None for all rows.

        Raises:
            DataError: no row, more than `MAX_ROWS`, a row of the wrong class, a repeated id, a row that does not
                survive JSON, or another exception of `load`.
        """
        try:
            with errors_named(f"task {self._name!r}: load()", but=ValidationError):
                with calling(f"load() of {self._name}"):
                    loaded = call_by_name(self._task.load, {"config": self._config}, positional=1)
                if not isinstance(loaded, Iterable):
                    raise DataError(f"task {self._name!r}: load() gave {type(loaded).__name__}; it must give rows.")
                rows = tuple(self._checked(islice(islice(loaded, self._config.size), limit)))
        except ValidationError as error:
            raise RowError(f"task {self._name!r}: load() made a row that is refused: {first_problem(error)}") from None
        if not rows:
            raise DataError(self._why_no_rows(spec))
        return rows

    def _why_no_rows(self, spec: str) -> str:
        split, path = self._config.split, self._config.path
        if path is None or path.startswith("hub:"):
            where = f"split {split!r}" + (f" in {path}" if path else "")
            return f"task {spec!r} has no rows for {where}; try another split, or give a local file with ?path=."
        options = self._options()
        with_options = f" with {options}" if options else ""
        none = f"has no rows{options and ', or none'}{with_options}."
        if SPLIT_IN_PATH in path:
            return f"task {self._name!r}: {path.replace(SPLIT_IN_PATH, split)} {none}"
        counts = {name: 0 if name == split else self._count_rows(name) for name in get_args(Split)}
        total = sum(counts.values())
        if not total:
            return f"task {self._name!r}: {path} {none}"
        shares = ", ".join(f"{number} {name}" for name, number in counts.items())
        return (
            f"task {self._name!r}: {path} has {total} row{'s' * (total > 1)}{with_options}: {shares}. Give more rows, "
            f"or one file per split with {SPLIT_IN_PATH} in its path."
        )

    def _options(self) -> str:
        """Return the options that may leave out rows of a file: those that are set, except which rows it takes."""
        names = sorted(self._config.model_fields_set - {"path", "fields", "split", "size", "seed"})
        values = [(name, getattr(self._config, name)) for name in names]
        return "&".join(
            f"{name}={','.join(map(str, value)) if isinstance(value, tuple) else value}"[:MAX_NAME_CHARS]
            for name, value in values
        )

    def _count_rows(self, split: Split) -> int:
        config = self._config.model_copy(update={"split": split, "size": None})
        with errors_named(f"task {self._name!r}: load()"):
            return sum(1 for _ in call_by_name(self._task.load, {"config": config}, positional=1))

    def from_json(self, text: str | bytes) -> Row:
        """Read a row back; see `BoundTask.row_from_json`."""
        try:
            return self._row_type.model_validate_json(text)
        except ValidationError as error:
            raise DataError(
                f"task {self._name!r}: a row does not fit {self._row_type.__name__}: {first_problem(error)}"
            ) from None

    def _checked(self, loaded: Iterable[Any]) -> Iterator[Row]:
        """Yield the rows, each checked; a display is told how many there are, and of one that does not come."""
        ids: set[str] = set()
        rows, reported, size, watch = iter(loaded), -math.inf, self._config.size, watcher()
        for number in count():
            with calling(f"load() of {self._name}"):
                row: Any = next(rows, _END)
            if row is _END:
                return
            if number == MAX_ROWS:  # a generator that does not end would fill the memory
                raise DataError(
                    f"task {self._name!r}: load() gave more than {MAX_ROWS:,} rows. If it does not end, give the size "
                    "that is wanted: ?size=10000."
                )
            if watch is not None and time.monotonic() - reported >= REPORT_S:
                reported = time.monotonic()
                hint = "; size=N takes the first N" if number >= MANY_ROWS else ""
                what = f"rows of {self._name}" + ("" if size else f", {number} so far{hint}")
                watch(what, number if size else 0, size or 0)
            self._check(row, ids)
            ids.add(row.id)
            yield row

    def _check(self, row: Any, ids: Collection[str]) -> None:
        """Refuse a row that is no row of the task, has an id of `ids`, or does not survive JSON."""
        if not isinstance(row, self._row_type):
            raise RowError(f"task {self._name!r}: load() gave a {type(row).__name__}, not a {self._row_type.__name__}.")
        if row.id in ids:
            raise RowError(f"task {self._name!r}: two rows have the id {row.id!r}; ids name prompts in every log.")
        try:
            text = row.model_dump_json()
        except PydanticSerializationError as error:  # a lone surrogate, an object of a class without JSON
            raise RowError(f"task {self._name!r}: row {row.id!r} cannot be written as JSON: {error}") from None
        if self.from_json(text) != row:
            raise RowError(f"task {self._name!r}: row {row.id!r} changes when written as JSON; use plain JSON types.")


def data_files(config: TaskConfig) -> list[Path]:
    """The local files that the rows are read from: one, those of a pattern, or those of a saved dataset."""
    if config.path is None or config.path.startswith("hub:"):
        return []
    path = user_path(config.path.replace(SPLIT_IN_PATH, config.split), "path")
    if kind_of(path) == "a file":
        return [path]
    pattern = f"{glob.escape(str(path))}/**/*.arrow" if kind_of(path) else str(path)
    return [file for file in map(Path, sorted(glob.glob(pattern, recursive=True))) if file.is_file()]


def row_by_id(rows: Iterable[Row], row_id: str, spec: str) -> Row:
    """Find a row by its id.

    Raises:
        UserError: there is none; names the closest match.
    """
    ids = []
    for row in rows:
        if row.id == row_id:
            return row
        ids.append(row.id)
    raise UserError(
        f"task {spec!r} has no row {row_id[:MAX_NAME_CHARS]!r} among its {len(ids)}.{near_match(row_id, ids)} "
        "Rows of another split: TASK?split=test. grpo sample TASK shows some."
    )
