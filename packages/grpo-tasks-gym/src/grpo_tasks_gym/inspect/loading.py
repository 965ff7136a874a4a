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
        name = name or _only_name(Path(file))
        _check_name(Path(file), name)
        spec = f"{file}@{name}"
    tasks = load_tasks([spec], dict(args))
    _check_args(name, args)
    return tasks[0], version_of(library, [Path(file)] if file else [])


def _names(file: Path) -> list[str]:
    if not file.is_file():
        raise UserError(f"file={file} does not exist.")
    try:
        names = [name for name, _ in parse_decorators(file, "task")]
    except (SyntaxError, UnicodeDecodeError, ValueError) as error:
        raise UserError(f"file={file} is no Python: {error}.") from None
    if not names:
        raise UserError(f"file={file} has no function marked @task of inspect_ai.")
    return names


def _only_name(file: Path) -> str:
    names = _names(file)
    if len(names) > 1:
        raise UserError(f"file={file} has {len(names)} tasks: choose with &name= one of {', '.join(names)}.")
    return names[0]


def _check_name(file: Path, name: str) -> None:
    names = _names(file)
    if name not in names:
        near = get_close_matches(name, names, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise UserError(f"file={file} has no task {name!r}.{hint} It has: {', '.join(names)}.")


def _check_args(name: str, args: Mapping[str, Any]) -> None:
    """Refuse arguments that the task does not take, which inspect-ai leaves out with a warning."""
    known: list[str] = registry_info(registry_lookup("task", name)).metadata["params"]
    for argument in args:
        if argument not in known:
            near = get_close_matches(argument, known, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise UserError(
                f"task {name} takes no argument {argument!r}.{hint} It takes: {', '.join(known) or 'none'}."
            )


def _version(package: str) -> str:
    names = metadata.packages_distributions().get(package, [package])
    try:
        return metadata.version(names[0])
    except metadata.PackageNotFoundError:
        return ""
