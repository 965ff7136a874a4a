"""Finds and makes a task of inspect-ai: of a file, or of a package that registers it."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import metadata
from pathlib import Path
from typing import Any

from inspect_ai import Task
from inspect_ai._eval.loader import load_tasks
from inspect_ai._util.decorator import parse_decorators
from inspect_ai._util.registry import registry_info, registry_lookup

from grpo_sdk import UserError
from grpo_tasks_gym.foreign.source import version_of


def load(file: str, name: str, args: Mapping[str, Any]) -> tuple[Task, str]:
    """The task and what its scores depend on.

    Args:
        file: Its file; empty for a task of a package.
        name: Its name; empty for the only one of a file.
        args: Arguments of the task.

    Raises:
        UserError: there is none, or it has not these arguments.
    """
    library = f"inspect-ai {metadata.version('inspect-ai')}"
    if not file:
        spec = name
        package = name.partition("/")[0]
        if registry_lookup("task", name) is None:
            raise UserError(f"no installed package registers the inspect-ai task {name}; pip install {package}?")
        library = f"{library} {package} {_version(package)}"
    else:
        name = _name_in(Path(file), name)
        spec = f"{file}@{name}"
    tasks = load_tasks([spec], dict(args))
    _check_args(name, args)
    return tasks[0], version_of(library, [Path(file)] if file else [])


def _name_in(file: Path, name: str) -> str:
    """Return the name of a task of a file: the given one, or that of the only one."""
    if not file.is_file():
        raise UserError(f"file={file} does not exist.")
    try:
        names = [each for each, _ in parse_decorators(file, "task")]
    except (SyntaxError, UnicodeDecodeError, ValueError) as error:
        raise UserError(f"file={file} is no Python: {error}.") from None
    if not names:
        raise UserError(f"file={file} has no function marked @task of inspect_ai.")
    if not name and len(names) > 1:
        raise UserError(f"file={file} has {len(names)} tasks: choose with &name= one of {', '.join(names)}.")
    if name and name not in names:
        raise UserError(f"file={file} has no task {name!r}.{_hint(name, names)} It has: {', '.join(names)}.")
    return name or names[0]


def _check_args(name: str, args: Mapping[str, Any]) -> None:
    """Refuse arguments that the task does not take, which inspect-ai leaves out with a warning."""
    known: list[str] = registry_info(registry_lookup("task", name)).metadata["params"]
    for argument in args:
        if argument not in known:
            takes = f"It takes: {', '.join(known) or 'none'}."
            raise UserError(f"task {name} takes no argument {argument!r}.{_hint(argument, known)} {takes}")


def _hint(name: str, known: list[str]) -> str:
    near = get_close_matches(name, known, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def _version(package: str) -> str:
    names = metadata.packages_distributions().get(package, [package])
    try:
        return metadata.version(names[0])
    except metadata.PackageNotFoundError:
        return ""
