"""Modules under their names of version 0.1: importing one warns, and gives what is at the new place."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType

PACKAGE = "grpo_core"

MOVED: dict[str, tuple[str, ...]] = {
    "binding": ("task.bound", "plugins.tasks"),
    "calling": ("task.calling",),
    "composition": ("task.composition",),
    "curriculum": ("prompts.curriculum",),
    "engines.opponent": ("rollouts.model_opponents",),
    "episodes": ("rollouts.episodes",),
    "evaluation.memory": ("policy.memory",),
    "game": ("task.game",),
    "game.replay": ("task.game.replay",),
    "game.rules": ("task.game.rules",),
    "game.task": ("task.game.task",),
    "identity": ("task.identity",),
    "mixture": ("prompts.mixture",),
    "model_source": ("plugins.models",),
    "models.plugin": ("plugins.core",),
    "opponents": ("rollouts.opponents",),
    "registry": ("plugins.variants",),
    "rollout": ("rollouts.rollout", "engines.completion"),
    "row_filter": ("prompts.filter",),
    "stopping": ("engines.stop_strings",),
    "task_conditions": ("scoring.conditions",),
    "task_evaluation": ("task.evaluation",),
    "task_files": ("plugins.task_files",),
    "task_metrics": ("scoring.metrics",),
    "taskspec": ("task.spec",),
    "training.schedules": ("algorithms.schedules",),
    "turns": ("task.turns",),
}
"""Old module -> the modules that hold its names now."""


class _Finder:
    # Not derived from importlib.abc, which takes longer to import than all the rest of the package's first import.
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, old = fullname.partition(".")
        if package != PACKAGE or old not in MOVED:
            return None
        return ModuleSpec(fullname, self)  # type: ignore[arg-type] # it has a loader's methods, not its class

    def create_module(self, spec: ModuleSpec) -> None:
        """Nothing: an ordinary module is made."""

    def exec_module(self, module: ModuleType) -> None:
        places = [f"{PACKAGE}.{new}" for new in MOVED[module.__name__.partition(".")[2]]]
        message = f"{module.__name__} has moved to {' and '.join(places)}; the old name goes with version 0.2."
        warnings.warn(message, DeprecationWarning, stacklevel=2)  # importlib's own frames do not count
        real = [import_module(place) for place in places]
        if len(real) == 1:  # one and the same module, so that what is patched in one is patched in the other
            sys.modules[module.__name__] = real[0]
            return
        for each in real:
            vars(module).update({name: value for name, value in vars(each).items() if not name.startswith("__")})


def install() -> None:
    """Have the import system find moved modules, after everything that exists."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
