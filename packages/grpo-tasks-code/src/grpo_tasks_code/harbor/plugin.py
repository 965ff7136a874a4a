"""Plugin `harbor`: folders in the format of Harbor as a task."""

from __future__ import annotations

from grpo_sdk import Task, hookimpl
from grpo_tasks_code.harbor import task


@hookimpl
def grpo_tasks() -> list[Task]:
    """The task of a folder, or of a folder of such folders."""
    return [task.TASK]
