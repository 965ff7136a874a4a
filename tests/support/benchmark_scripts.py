"""The scripts of benchmarks/, as modules."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).parents[2] / "benchmarks"
SHARED = ("arguments", "workload", "step_task", "agents_task", "scale_ranks")
"""Modules that are not run by themselves."""

SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in SHARED)


def load_script(name: str) -> ModuleType:
    """The module of a script, which finds its neighbours."""
    if str(FOLDER) not in sys.path:
        sys.path.append(str(FOLDER))
    module_name = f"benchmark_{name}"
    if module_name not in sys.modules:
        spec = importlib.util.spec_from_file_location(module_name, FOLDER / f"{name}.py")
        assert spec is not None and spec.loader is not None
        module = sys.modules[module_name] = importlib.util.module_from_spec(spec)  # dataclasses look their module up
        spec.loader.exec_module(module)
    return sys.modules[module_name]
