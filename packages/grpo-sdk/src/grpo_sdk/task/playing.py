"""Asking the server that plays a task."""

from __future__ import annotations

from grpo_sdk.task.calling import call_by_name
from grpo_sdk.task.remote import Remote
from grpo_sdk.task.row import TaskConfig
from grpo_sdk.task.task import Task


def remote_of(task: Task, config: TaskConfig) -> Remote:
    """What asks the server of a task under its options."""
    assert task.remote is not None
    made: Remote = call_by_name(task.remote, {"config": config}, positional=1)
    return made
