"""A plugin with a misspelt hook."""

from grpo_core import hookimpl


@hookimpl
def grpo_task():
    return []
