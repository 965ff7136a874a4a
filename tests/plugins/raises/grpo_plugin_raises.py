"""A plugin that imports well and fails when it is asked for its tasks."""

from grpo_core import hookimpl


@hookimpl
def grpo_tasks():
    raise FileNotFoundError("word list not found")
