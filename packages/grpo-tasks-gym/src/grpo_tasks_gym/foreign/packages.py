"""The door to other libraries: whether one is installed, and its import."""

from __future__ import annotations

import importlib
import sys
import warnings
from importlib import util
from types import ModuleType

from grpo_sdk import UserError


def check_installed(module: str, package: str, extra: str) -> None:
    """Refuse a task whose library is missing.

    Raises:
        UserError: it is; says how to install it.
    """
    if util.find_spec(module) is None:
        raise UserError(f"{package} is not installed: pip install 'grpo-tasks-gym[{extra}]'.")


def import_library(name: str) -> ModuleType:
    """Import a module of a library, without the warnings of its own code, which `python -W error` makes errors.

    A failed import leaves modules that later imports would take for whole; they are dropped, so that each try fails
    with the reason of the first.

    Raises:
        UserError: the library cannot be imported; says why.
    """
    library = name.partition(".")[0]
    if library not in sys.modules:
        for left in [each for each in sys.modules if each.startswith(f"{library}.")]:
            del sys.modules[left]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(name)
    except Exception as error:  # whatever its code raises
        raise UserError(f"{library} cannot be imported: {type(error).__name__}: {error}") from error
