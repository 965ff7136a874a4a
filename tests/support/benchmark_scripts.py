"""The scripts of benchmarks/, as modules."""

import sys
from pathlib import Path
from types import ModuleType

from script_modules import module_of

FOLDER = Path(__file__).parents[2] / "benchmarks"
SHARED = ("arguments", "workload", "step_task", "agents_task", "scale_ranks")
"""Modules that are not run by themselves."""

SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in SHARED)


def load_script(name: str) -> ModuleType:
    """The module of a script, which finds its neighbours."""
    if str(FOLDER) not in sys.path:
        sys.path.append(str(FOLDER))
    return module_of(FOLDER / f"{name}.py")
