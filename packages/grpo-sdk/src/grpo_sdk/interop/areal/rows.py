"""Rows for AReaL, written without it."""

from __future__ import annotations

from typing import Any

from grpo_sdk.interop.adapter import TaskAdapter
from grpo_sdk.task.row import Row


def record(adapter: TaskAdapter, row: Row) -> dict[str, Any]:
    """One row of AReaL's data."""
    messages = adapter.first_messages(row)
    return {"messages": messages, "task": adapter.task.spec, "row": row.model_dump_json()}
