"""The tasks of `grpo-tasks-gym`, as users write them: `reasoning_gym.leg_counting`."""

from __future__ import annotations

from grpo_sdk import Task, hookimpl
from grpo_tasks_gym.reasoning_gym.catalogue import datasets
from grpo_tasks_gym.reasoning_gym.task import task_of


@hookimpl
def grpo_tasks() -> list[Task]:
    """A task for each data set of reasoning-gym."""
    return [task_of(name, dataset) for name, dataset in datasets().items()]
