"""A second package that calls its plugin `good`."""

from grpo_core import hookimpl


@hookimpl
def grpo_tasks():
    return []
