"""GRPO training of language models on the verifiable tasks of grpo_sdk, whose names stand here, too.

Each name is loaded when it is first used; `evaluate` and `Completer` import torch, `train` when it is
called, the others do not.
"""

from __future__ import annotations

import importlib
import os
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

import grpo_sdk
from grpo_sdk import __version__ as __version__

if TYPE_CHECKING:
    from grpo_core.config.resolution import task_for_model
    from grpo_core.evaluation.completer import Completer
    from grpo_core.evaluation.evaluate import evaluate
    from grpo_core.training.resume import resume
    from grpo_core.training.start import train
    from grpo_core.training.warm_start import warm_start
    from grpo_sdk import *  # noqa: F403


def _sleep_while_waiting() -> None:
    """Let torch's threads spin for microseconds and then sleep while they wait for one another.

    By themselves they spin for milliseconds, which beside other work costs several times the step; without any spinning
    an idle machine takes a fifth longer.
    """
    if "torch" not in sys.modules and not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys():
        os.environ.update(OMP_WAIT_POLICY="PASSIVE", GOMP_SPINCOUNT="2000")


def _bound_kernel_caches() -> None:
    """Let oneDNN and torch's layer over it keep the kernels of 256 shapes of matrix products, not of 1024.

    With a kernel they keep its workspace, up to the size of its result. A batch of tokens brings about 20 new shapes,
    sampling five for each number of rows; the others would stay for hundreds of megabytes.
    """
    for name in ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY"):
        os.environ.setdefault(name, "256")


_sleep_while_waiting()
_bound_kernel_caches()

SECOND_NAMES = {"data": "data", "interop": "interop", "judges": "judges", "rewards": "rewards", "testing": "check"}
"""Modules of grpo_sdk that are modules of grpo_core, too: name here -> name there."""


class _SecondNames(MetaPathFinder, Loader):
    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        _, _, rest = name.partition("grpo_core.")
        first, dot, below = rest.partition(".")
        return (
            ModuleSpec(name, self, origin=f"grpo_sdk.{SECOND_NAMES[first]}{dot}{below}")
            if first in SECOND_NAMES
            else None
        )

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(str(spec.origin))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = module.__spec__.loader_state  # type: ignore[union-attr] # set above, by the import system, too

    def get_code(self, name: str) -> Any:  # which `python -m` runs
        module: Any = importlib.import_module(name)
        return module.__spec__.loader.get_code(module.__name__)


sys.meta_path.insert(0, _SecondNames())  # before the one that would import a file under both names

_MODULE_OF = {
    "Completer": "evaluation.completer",
    "evaluate": "evaluation.evaluate",
    "resume": "training.resume",
    "task_for_model": "config.resolution",
    "train": "training.start",
    "warm_start": "training.warm_start",
}

__all__ = ["Completer", "evaluate", "resume", "task_for_model", "train", "warm_start"]
__all__ += grpo_sdk.__all__


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    owner = importlib.import_module(f"grpo_core.{_MODULE_OF[name]}") if name in _MODULE_OF else grpo_sdk
    value = globals()[name] = getattr(owner, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
