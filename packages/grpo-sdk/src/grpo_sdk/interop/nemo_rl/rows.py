"""Rows for NeMo-RL, written without it."""

from __future__ import annotations

from pathlib import Path

from grpo_sdk.errors import UserError
from grpo_sdk.interop.adapter import TaskAdapter, label_of, write_jsonl
from grpo_sdk.plugins.task_objects import AnyTask
from grpo_sdk.task.row import Row


def record(adapter: TaskAdapter, row: Row) -> dict[str, str]:
    """A row as NeMo-RL's `ResponseDataset` reads it.

    Raises:
        UserError: its prompt is not one message by the user.
    """
    messages = adapter.first_messages(row)
    if [message["role"] for message in messages] != ["user"]:
        raise UserError(
            f"task {adapter.task.name!r}: NeMo-RL's math_hf_data_processor writes one message by the user, and the "
            f"prompt has {' and '.join(message['role'] for message in messages)}. Use another template."
        )
    return {"input": messages[0]["content"], "output": label_of(adapter, row)}


def write_rows(task: AnyTask, path: str | Path) -> None:
    """Write the rows of a task as the JSONL that NeMo-RL's `ResponseDataset` reads.

    Args:
        task: The task.
        path: The file.

    Raises:
        UserError: NeMo-RL cannot train the task.
    """
    with TaskAdapter(task, "NeMo-RL") as adapter:
        write_jsonl(adapter, record, path)
