"""grpo-core's own plugin: the task `core.qa` and the embedded model `tiny`."""

from __future__ import annotations

from grpo_core.plugins.core import grpo_models
from grpo_core.plugins.hooks import hookimpl
from grpo_core.task.task import Task
from grpo_core.tasks import qa

__all__ = ["grpo_models", "grpo_tasks"]


@hookimpl
def grpo_tasks() -> list[Task]:
    """The tasks that ship with grpo-core."""
    return [qa.TASK]
