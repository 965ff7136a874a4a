"""How this process was started, so that a printed command can be typed as it stands."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

SCRIPTS = ("grpo", "grpo-run")

UV_RUN = "UV_RUN_RECURSION_DEPTH"
"""Variable that `uv run` sets for the commands that it starts."""


def program() -> str:
    """The words that start `grpo` here: `grpo`, `uv run grpo`, `python -m grpo_core` or the path of the script.

    Inside of another program, as a notebook or a test, it is `grpo`; also in one of several ranks, whose launcher
    starts modules.
    """
    started = Path(sys.argv[0])
    is_module = started.name == "__main__.py" and started.parent.name == "grpo_core" and "RANK" not in os.environ
    if not (is_module or started.stem in SCRIPTS):
        return "grpo"
    words = ["grpo"]
    if is_module:
        words = [_as_typed(Path(sys.executable)), "-m", "grpo_core"]
    elif UV_RUN not in os.environ:
        words = [_as_typed(started.with_name("grpo" + started.suffix))]
    return shlex.join(["uv", "run", *words] if UV_RUN in os.environ else words)


def without(words: Iterable[str], *names: str) -> list[str]:
    """Return the words of a command line without some options (`--seed 1`, `--seed=1`) and settings (`seed=1`)."""
    kept, remaining = [], iter(words)
    for word in remaining:
        if word in names:
            next(remaining, None)
        elif word.partition("=")[0] not in names:
            kept.append(word)
    return kept


def _as_typed(path: Path) -> str:
    """The name of a program where the shell finds this one by it, else its path, relative to the working directory."""
    found = shutil.which(path.name)
    if found is not None and Path(found).absolute() == path.absolute():
        return path.stem if path.suffix == ".exe" else path.name
    here = Path.cwd()
    return str(path.absolute().relative_to(here)) if path.absolute().is_relative_to(here) else str(path)


def command(*words: str) -> str:
    """A command of `grpo` as it is typed here.

    Args:
        *words: Words after `grpo`.
    """
    return f"{program()} {shlex.join(words)}"
