"""The files of a new plugin, from the templates beside this module."""

from __future__ import annotations

import importlib.util
import keyword
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from string import Template
from typing import Literal, NamedTuple

from grpo_sdk import __version__
from grpo_sdk.distributions import version_of
from grpo_sdk.errors import UserError, near_match
from grpo_sdk.paths import check_makeable
from grpo_sdk.plugins.host import default_host

Kind = Literal["task", "game", "turns", "tools", "rows", "gym"]

OURS = ("core", "trainer", "math", "code", "chess", "games", "reasoning_gym", "nemo_gym", "openenv")
"""Plugins of this project: also where one is not installed, its name is taken."""

BESIDE = frozenset({
    "accelerate", "areal", "art", "atroposlib", "datasets", "grpo", "grpo_core", "grpo_tasks_chess", "grpo_tasks_code",
    "grpo_tasks_games", "grpo_tasks_gym", "grpo_tasks_math", "grpo_verifiers", "gymnasium", "inspect_ai", "nemo_gym",
    "nemo_rl", "numpy", "openenv", "openrlhf", "peft", "prime_rl", "ray", "scipy", "sglang", "skyrl", "slime", "swift",
    "sympy", "tinker", "torch", "transformers", "trl", "verifiers", "verl", "vllm",
})  # fmt: skip
"""Packages that a plugin may be installed beside, also where they are not here."""

REQUIREMENT = f"grpo-sdk~={'.'.join(__version__.split('.')[:2])}"
"""The contract of tasks changes only with a warning in a minor version before, so a later minor version will do."""

WITH_GOLDS = (
    "The last command makes a small model that sometimes succeeds, and trains it; no GPU is needed. To train a model "
    "of your\nown: `grpo run --task {} --model MODEL`."
)
WITHOUT_GOLDS = (
    "The last command trains MODEL, a model of the hub or a folder. `grpo run --quick` needs rows with golds, and "
    "these have none."
)
"""Of the README, on training."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[-_][A-Za-z0-9]+)*")
MAX_NAME_CHARS = 60


class Start(NamedTuple):
    """What a kind of plugin begins with: the option that asks for it, its task, and its templates."""

    option: str
    task: str
    source: str
    tests: str
    description: str


KINDS: Mapping[Kind, Start] = {
    "task": Start("", "reverse", "task", "reverse", "Words to write backwards."),
    "game": Start("--game", "heap", "game", "game", "A heap of counters; who takes the last one wins."),
    "turns": Start("--multi-turn", "reverse", "task", "reverse", "Words to write backwards, with a second attempt."),
    "tools": Start("--tools", "search", "tools", "tools", "A word in a drawer, found with tools."),
    "rows": Start("--from-jsonl", "questions", "qa", "qa", "Questions and answers of rows.jsonl."),
    "gym": Start("--from-reasoning-gym", "puzzle", "gym", "gym", "A data set of reasoning-gym."),
}


@dataclass(frozen=True, slots=True)
class Project:
    """A plugin to write.

    Attributes:
        name: Name of the distribution and its folder, as the user typed it.
        kind: What it begins with: a task, also of two turns or with tools, a game, rows of a file, a data set.
        values: More values of the templates.
        packages: Distributions that it needs beside grpo-sdk.
        has_golds: Whether its rows have golds, from which `grpo run --quick` makes a small model.
    """

    name: str
    kind: Kind
    values: Mapping[str, str] = field(default_factory=dict)
    packages: tuple[str, ...] = ()
    has_golds: bool = True

    @property
    def training(self) -> tuple[str, ...]:
        """Arguments of the command that trains on it."""
        if self.has_golds:
            return ("run", "--quick", "--task", self.full_name)
        return ("run", "--task", self.full_name, "--model", "MODEL")

    @property
    def module(self) -> str:
        """Name of the module and of the plugin."""
        return self.name.lower().replace("-", "_")

    @property
    def task(self) -> str:
        """Name of the task."""
        return KINDS[self.kind].task

    @property
    def full_name(self) -> str:
        """Full name of the task, once the plugin is installed."""
        return f"{self.module}.{self.task}"

    def files(self) -> dict[str, str]:
        """Path in the project -> its text."""
        is_game = self.kind == "game"
        package = f"src/{self.module}"
        described = {
            f"{package}/task.py": "the game" if is_game else "rows, prompt, validator and rewards",
            **({f"{package}/rows.jsonl": "the questions and answers"} if self.kind == "rows" else {}),
            f"{package}/__init__.py": "the hook by which grpo finds it",
            "tests/test_task.py": "its tests: each check of `grpo check`, and some of its own",
            "pyproject.toml": "the package, with the entry point whose name is the plugin's",
        }
        values = {
            "project": self.name,
            "module": self.module,
            "task": self.task,
            "full_name": self.full_name,
            "description": KINDS[self.kind].description,
            "kind": "Game" if is_game else "Task",
            "kind_words": "game" if is_game else "task",
            "hook": "grpo_games" if is_game else "grpo_tasks",
            "files": "\n".join(f"| `{path}` | {what} |" for path, what in described.items()),
            "dependencies": ", ".join(f'"{name}"' for name in (REQUIREMENT, *self.packages)),
            "train": " ".join(self.training),
            "training": WITH_GOLDS.format(self.full_name) if self.has_golds else WITHOUT_GOLDS,
            "respond": "",
            "more": "",
            **self.values,
        }
        if self.kind == "turns":
            values |= {"respond": _template("respond"), "more": "\n    respond=respond,\n    max_turns=2,"}
        values["tests"] = _filled(f"test_{KINDS[self.kind].tests}", values).strip()
        return {
            "pyproject.toml": _filled("pyproject.toml", values),
            "README.md": _filled("README.md", values),
            f"{package}/__init__.py": _filled("init.py", values),
            f"{package}/task.py": _filled(f"{KINDS[self.kind].source}.py", values),
            "tests/test_task.py": _filled("test_task.py", values),
        }


def _template(name: str) -> str:
    suffix = "" if "." in name else ".py"
    return resources.files("grpo_sdk.cli").joinpath("templates", f"{name}{suffix}.in").read_text(encoding="utf-8")


def _filled(name: str, values: Mapping[str, str]) -> str:
    return Template(_template(name)).substitute(values)


def check_name(name: str) -> None:
    """Refuse a name that the plugin, its module or its distribution cannot have.

    Raises:
        UserError: says why, and what to do.
    """
    module = name.lower().replace("-", "_")
    if _NAME.fullmatch(name) is None or len(name) > MAX_NAME_CHARS:
        raise UserError(
            f"name {name!r:.80}: use up to {MAX_NAME_CHARS} letters, digits, - and _, beginning with a letter: my-task."
        )
    host = default_host()
    installed = host.distribution(module) if module in host.names else ""
    if installed or module in OURS:
        raise UserError(f"name {name!r} is that of a plugin: {installed or f'grpo-tasks-{module}'}; try my-{name}.")
    if keyword.iskeyword(module) or keyword.issoftkeyword(module) or module in sys.stdlib_module_names:
        what = "a module of Python" if module in sys.stdlib_module_names else "a word of Python"
        raise UserError(f"name {name!r} is {what}, which a plugin's module cannot be called; try my-{name}.")
    if near := near_match(module, [*host.names, *OURS]):
        close = near.split("'")[1]
        if abs(len(close) - len(module)) <= 1 and module.strip("s") == close.strip("s"):
            raise UserError(f"name {name!r} is too near to the plugin {close!r} to tell them apart; try my-{name}.")
    if module in BESIDE or importlib.util.find_spec(module) or version_of(name):
        raise UserError(f"name {name!r} is that of another package; try my-{name}.")


def check_new(folder: Path) -> None:
    """Refuse a folder that exists, or that cannot be made.

    Raises:
        UserError: it is so.
    """
    if os.path.lexists(folder):
        raise UserError(f"{folder} exists already, and nothing is overwritten: give another name, or remove it first.")
    check_makeable(folder, f"folder {folder}")


def write(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Write files into a folder that does not exist yet.

    Raises:
        UserError: it cannot be written.
    """
    try:
        for path, content in files.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content if isinstance(content, bytes) else content.encode())
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {error.strerror or error}.") from None
