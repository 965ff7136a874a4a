"""What to check: the tasks that a target names."""

from __future__ import annotations

from collections.abc import Iterable

from grpo_sdk.errors import UserError, unknown_name
from grpo_sdk.plugins.host import default_host
from grpo_sdk.plugins.task_files import tasks_of_file
from grpo_sdk.plugins.tasks import bind, load_task
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.spec import parse_task_specs

ALL = "all"


def tasks_of(target: str) -> list[BoundTask]:
    """The tasks that a target names: `all`, a plugin, a Python file, or a task spec.

    Args:
        target: `all`, `rhyme`, `./rhyme.py`, or a spec as for `--task`, which may name several tasks.

    Raises:
        UserError: no such task, plugin or file, or one without tasks; a plugin that does not load.
    """
    host = default_host()
    if target == ALL:
        return _bound(name for report in host.reports() for name in report.tasks)
    if target in host.names:
        report = next(report for report in host.reports() if report.name == target)
        if report.error:
            raise UserError(f"plugin {target!r} was not loaded: {report.error}")
        if not report.tasks:
            raise UserError(f"plugin {target!r} has no tasks.")
        return _bound(report.tasks)
    if target.endswith(".py"):
        file = target if target.startswith((".", "/", "~")) else f"./{target}"
        names = list(tasks_of_file(file, f"file {target!r}"))
        if not names:
            raise UserError(f"{target} has no Task or Game.")
        return _bound(f"{file}:{name}" for name in names)
    if target.isidentifier():  # a plugin or a task by its last name: `load_task` names what exists
        raise unknown_name("plugin", target, [*host.names, ALL])
    return [bind(spec) for spec in parse_task_specs(target)]


def not_loaded() -> dict[str, str]:
    """The installed plugins that do not load, each with its error."""
    return {report.name: report.error for report in default_host().reports() if report.error}


def _bound(specs: Iterable[str]) -> list[BoundTask]:
    return [load_task(spec) for spec in specs]
