"""grpo-sdk's own plugin: the task `core.qa`."""

from __future__ import annotations

from grpo_sdk.plugins.hooks import hookimpl
from grpo_sdk.task.task import Task
from grpo_sdk.tasks import qa


@hookimpl
def grpo_tasks() -> list[Task]:
    """The tasks that ship with grpo-sdk."""
    return [qa.TASK]
