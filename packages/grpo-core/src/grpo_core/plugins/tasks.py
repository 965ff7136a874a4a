"""Tasks by name or file, with their options bound: `load_task`."""

from __future__ import annotations

from grpo_core.errors import UserError
from grpo_core.plugins.host import PluginHost, default_host
from grpo_core.plugins.task_files import task_from_file
from grpo_core.task.bound import BoundTask, bind_config
from grpo_core.task.spec import TaskSpec, parse_task_specs


def load_task(spec: str, host: PluginHost | None = None) -> BoundTask:
    """Load one task with its options.

    Args:
        spec: `math.gsm8k?template=r1&split=test`, or a file and a name in it: `./rhyme.py:couplet?size=100`.
        host: Host that looks plugins up; by default that of the installed ones.

    Raises:
        UnknownNameError: no such task; lists what exists.
        UserError: an option that does not exist, or a value that does not fit; several tasks in the spec.
    """
    specs = parse_task_specs(spec)
    if len(specs) != 1:
        raise UserError(f"{spec!r} names {len(specs)} tasks; one is wanted here.")
    return bind(specs[0], host)


def bind(spec: TaskSpec, host: PluginHost | None = None) -> BoundTask:
    """Like `load_task`, from a parsed spec."""
    if ".py:" in spec.name:
        task, name = task_from_file(spec.name)
    else:
        task, name = (host or default_host()).task(spec.name), spec.name
    return BoundTask(task, name, bind_config(task, name, spec), spec)
