"""The task of the plugin: `nemo_gym.rows`."""

from __future__ import annotations

from grpo_sdk import Task, hookimpl
from grpo_tasks_gym.nemo_gym.task import rows


@hookimpl
def grpo_tasks() -> list[Task]:
    """The task."""
    return [rows]
