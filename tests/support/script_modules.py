"""Scripts that are in no package, as modules."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def module_of(script: Path) -> ModuleType:
    """The module of a script, by a name that no other module has."""
    name = f"script_{script.stem}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, script)
        assert spec is not None and spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)  # dataclasses look their module up
        spec.loader.exec_module(module)
    return sys.modules[name]
