"""The rows of a task in a trainer's own format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson

from grpo_sdk.errors import DataError
from grpo_sdk.interop.adapter.task_adapter import TaskAdapter
from grpo_sdk.task.row import Row


def write_jsonl(
    adapter: TaskAdapter, record: Callable[[TaskAdapter, Row], Mapping[str, Any]], path: str | Path
) -> None:
    """Write the rows of a task as JSONL.

    Args:
        adapter: The task.
        record: Makes what is written of a row.
        path: The file.
    """
    with open(path, "wb") as file:
        file.writelines(orjson.dumps(record(adapter, row)) + b"\n" for row in adapter.task.rows())


def label_of(adapter: TaskAdapter, row: Row) -> str:
    """A row with the spec of its task as one text, for a trainer whose reward gets no more than a label."""
    return orjson.dumps({"task": adapter.task.spec, "row": row.model_dump_json()}).decode()


def read_label(label: object, trainer: str, written_by: str) -> tuple[str, str]:
    """Read a label of `label_of`.

    Args:
        label: The label.
        trainer: Name of the trainer, for the error.
        written_by: What writes labels, likewise.

    Returns:
        (spec of the task, row as JSON).

    Raises:
        DataError: it is something else.
    """
    try:
        fields = orjson.loads(label)  # type: ignore[arg-type] # a TypeError is one of ours
        return fields["task"], fields["row"]
    except (TypeError, KeyError, orjson.JSONDecodeError):
        raise DataError(f"{trainer}: a row's label is not of {written_by}, with which the data is written.") from None
