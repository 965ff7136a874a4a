"""The tasksets of verifiers that are installed, as users write them: `verifiers.NAME`. Imports nothing of theirs."""

from __future__ import annotations

import re
from functools import cache
from importlib import metadata, util
from pathlib import PurePosixPath
from typing import ClassVar

from pydantic import create_model

from grpo_sdk import Task, UserError, hookimpl
from grpo_tasks_gym.foreign.options import ForeignConfig
from grpo_tasks_gym.foreign.packages import check_installed
from grpo_tasks_gym.foreign.task import foreign_task

MAX_TASKSETS = 1000

_OWN = re.compile(r"verifiers|grpo-|prime-rl")
"""Distributions that need verifiers for something else."""

_NEEDS = re.compile(r"^Requires-Dist: *verifiers\b(?!-)(?!.*extra *==)", re.MULTILINE | re.IGNORECASE)


def installed() -> dict[str, str]:
    """Module -> name and version of its distribution, for each that needs verifiers without an extra."""
    modules: dict[str, str] = {}
    for distribution in metadata.distributions():
        text = distribution.read_text("METADATA") or ""
        if not _NEEDS.search(text.partition("\n\n")[0]) or _OWN.match(distribution.name):
            continue
        for module in _modules(distribution):
            modules.setdefault(module, f"{distribution.name} {distribution.version}")
    return dict(sorted(modules.items())[:MAX_TASKSETS])


def exists(name: str) -> bool:
    """Whether there is a module of this name."""
    try:
        return name.isidentifier() and util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _modules(distribution: metadata.Distribution) -> set[str]:
    """Modules at the top of a distribution, or by its name where it is installed from its sources."""
    tops = {PurePosixPath(file).parts[0] for file in distribution.files or () if file.suffix == ".py"}
    names = {top.removesuffix(".py") for top in tops} | {re.sub(r"[-.]", "_", distribution.name).lower()}
    return {name for name in names if not name.startswith("_") and exists(name)}


class VerifiersConfig(ForeignConfig):
    """Options of a taskset's task; `args` are the fields of its configuration."""

    library: ClassVar[tuple[str, str, str]] = ("verifiers", "verifiers", "verifiers")
    opener: ClassVar[str] = "grpo_tasks_gym.verifiers.task:open_taskset"
    taskset: ClassVar[str] = ""

    def target(self) -> dict[str, str]:
        """The taskset."""
        return {"taskset": self.taskset}


@cache
def _task(name: str, distribution: str) -> Task:
    title = "".join(part.capitalize() for part in name.split("_"))
    config = create_model(
        f"{title}Config", __base__=VerifiersConfig, __module__=__name__, __doc__=VerifiersConfig.__doc__
    )
    config.taskset = name
    about = f"verifiers: the taskset {name}{f' of {distribution}' if distribution else ''}."
    return foreign_task(name, config, about, lambda config: f"the code of the package {config.taskset}")


@hookimpl
def grpo_tasks() -> list[Task]:
    """A task for each package that needs verifiers."""
    return [_task(name, distribution) for name, distribution in installed().items()]


@hookimpl
def grpo_find_task(name: str) -> Task:
    """The task of a taskset whose package does not say that it needs verifiers.

    Raises:
        UserError: verifiers, or a module of that name, is not installed.
    """
    check_installed("verifiers", "verifiers", "verifiers")
    if not exists(name):
        known = ", ".join(f"verifiers.{each}" for each in installed()) or "none"
        raise UserError(
            f"no taskset {name!r} is installed: a package of this name with a Taskset of verifiers 0.4 or newer. "
            f"Install it with pip, or with `prime env install OWNER/{name.replace('_', '-')}`. Installed: {known}."
        )
    return _task(name, "")
