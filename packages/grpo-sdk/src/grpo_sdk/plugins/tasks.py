"""Tasks by name or file, with their options bound: `load_task`."""

from __future__ import annotations

from typing import Any

from grpo_sdk.errors import UserError
from grpo_sdk.plugins.host import PluginHost, default_host
from grpo_sdk.plugins.task_files import is_file, task_from_file
from grpo_sdk.plugins.task_objects import AnyTask, bind_object, name_tasks, receive
from grpo_sdk.task.bound import BoundTask, bind_config
from grpo_sdk.task.spec import TaskSpec, parse_task_specs


def load_task(task: AnyTask, host: PluginHost | None = None, **options: Any) -> BoundTask:
    """Load one task with its options.

    Args:
        task: `math.gsm8k?template=r1&split=test`, or a file and a name in it: `./rhyme.py:couplet?size=100`; or a
            `Task` or `Game` object.
        host: Host that looks plugins up; by default that of the installed ones.
        options: Options of the task by name, beside those of the spec; None returns one to its default.

    Raises:
        UnknownNameError: no such task; lists what exists.
        UserError: an option that does not exist, or a value that does not fit; several tasks in the spec; an object
            that other processes cannot get.
    """
    if isinstance(task, BoundTask) and task.source:  # its file may have been edited since
        return task.with_options(**options)
    named = name_tasks(task, host)
    specs = parse_task_specs(named.spec)
    if len(specs) != 1:
        raise UserError(f"{named.spec!r} names {len(specs)} tasks; one is wanted here.")
    return bind(specs[0].with_options(**options), host)


def bind(spec: TaskSpec, host: PluginHost | None = None) -> BoundTask:
    """Like `load_task`, from a parsed spec."""
    if (bound := bind_object(spec)) is not None:
        return bound
    if ".py:" in spec.name or is_file(spec.name):
        return _bind_file(spec)
    task, name = (host or default_host()).task(spec.name), spec.name
    return BoundTask(task, name, bind_config(task, name, spec), spec)


def received_task(spec: str, pickled: str = "", source: str = "") -> BoundTask:
    """Make a task again in a child of the process that called `send` with it."""
    if pickled:
        return receive(spec, pickled)
    return _bind_file(parse_task_specs(spec)[0], source) if source else load_task(spec)


def _bind_file(spec: TaskSpec, source: str = "") -> BoundTask:
    task, name, source = task_from_file(spec.name, source)
    return BoundTask(task, name, bind_config(task, name, spec), spec, source=source)
