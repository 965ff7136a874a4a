"""Stand-ins for packages that a trainer imports beside its reward code: engines and devices."""

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock


class Stub(ModuleType):
    """A module that has everything, with no behaviour; as a decorator it returns what it decorates."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()


class Anything(MagicMock):
    """Whatever a stubbed module has."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs and (isinstance(args[0], type) or type(args[0]).__name__ == "function"):
            return args[0]
        return Anything()


class Finder(MetaPathFinder, Loader):
    """Finds stubs of some packages and of all modules in them."""

    def __init__(self, packages: tuple[str, ...]) -> None:
        self.packages = packages

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        is_stubbed = any(name == package or name.startswith(f"{package}.") for package in self.packages)
        return ModuleSpec(name, self, is_package=True) if is_stubbed else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return Stub(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def stub(*packages: str) -> None:
    """Import stubs in place of packages, or of modules."""
    sys.meta_path.insert(0, Finder(packages))
