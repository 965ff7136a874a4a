"""Pickles of task objects for this process's own children, which are the only ones to read them.

Functions and classes of modules that a child can import go by name. Those of `__main__`, of a notebook's cells, and of
modules that cannot be found by their names go by value, with the globals that they use (cloudpickle).
"""

from __future__ import annotations

import base64
import functools
import inspect
import io
import pickle
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import cloudpickle

from grpo_sdk.errors import UserError

MAX_BYTES = 32 << 20
"""Largest pickle: every worker gets a copy of its own, and one frame to a worker holds 64 MiB."""

MAX_REASON_CHARS = 200
"""Longest part of an object's own error in a message."""


def dumps(value: Any, task: str, contributions: Mapping[str, Any]) -> str:
    """Pickle a task as text.

    Args:
        value: The task, or the game that it is made of.
        task: Name of the task, for messages.
        contributions: The author's functions and values by name, one of which is named where pickling fails.

    Raises:
        UserError: it holds something that cannot be sent, or too much.
    """
    try:
        return base64.b64encode(_dumped(value)).decode()
    except Exception as error:  # an object's own __reduce__ may raise anything
        culprit = next(_culprits(contributions), None)
        what, why = culprit or ("it", error)
        raise UserError(
            f"task {task!r}: {what} cannot be sent to the processes that score: {_reason(why)}. Make it inside the "
            "function that uses it, or in a module that the function imports."
        ) from None


def loads(text: str) -> Any:
    """Read what the parent of this process pickled with `dumps`."""
    return pickle.loads(base64.b64decode(text))


def _dumped(value: Any) -> bytes:
    file = _Bounded()
    with _lock:
        pickler = _Pickler(file)
        try:
            pickler.dump(value)
        finally:
            pickler.close()
    return file.getvalue()


_lock = threading.Lock()
"""Which modules go by value is kept by cloudpickle for the whole process."""


class _Bounded(io.BytesIO):
    def write(self, data: Any, /) -> int:
        if self.tell() + memoryview(data).nbytes > MAX_BYTES:
            raise UserError(f"it is larger than {MAX_BYTES >> 20} MiB")
        return super().write(data)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc] # it has no types
    """Pickles what cloudpickle does, and cached functions and those of modules that a child cannot import."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self._importable: dict[str, bool] = {}
        self._by_value: list[ModuleType] = []

    def close(self) -> None:
        """Forget which modules go by value."""
        for module in self._by_value:
            cloudpickle.unregister_pickle_by_value(module)

    def reducer_override(self, obj: Any) -> Any:
        """Reduce one object; called by pickle for everything but numbers, texts and containers."""
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(obj, torch.Tensor) and obj.device.type != "cpu":
            raise UserError(f"it is a tensor on {obj.device}, where each worker would hold a copy")
        if isinstance(obj, io.TextIOWrapper | io.BufferedReader | io.BufferedWriter | io.BufferedRandom | io.FileIO):
            raise UserError("it is an open file")  # cloudpickle would send what can be read of it
        if isinstance(obj, functools._lru_cache_wrapper) and not self._goes_by_name(obj):
            return functools.lru_cache(**obj.cache_parameters()), (obj.__wrapped__,)
        module = obj if isinstance(obj, ModuleType) else _module_of(obj)
        if module is not None and isinstance(obj, type | FunctionType | ModuleType):
            self._is_importable(module)
        return super().reducer_override(obj)

    def _goes_by_name(self, obj: Any) -> bool:
        """Whether a child finds this very object where its name says."""
        module = _module_of(obj)
        return module is not None and getattr(module, obj.__qualname__, None) is obj and self._is_importable(module)

    def _is_importable(self, module: ModuleType) -> bool:
        """Whether a child can import a module; one that it cannot goes by value from now on."""
        name = module.__name__
        if name not in self._importable:
            self._importable[name] = _is_importable(module)
            if not self._importable[name] and sys.modules.get(name) is module:
                cloudpickle.register_pickle_by_value(module)
                self._by_value.append(module)
        return self._importable[name]


def _module_of(obj: Any) -> ModuleType | None:
    name = getattr(obj, "__module__", None)
    return sys.modules.get(name) if isinstance(name, str) else None


def _is_importable(module: ModuleType) -> bool:
    """Whether the import path leads to a module's own file; `sys.modules` says nothing about another process."""
    name, file = module.__name__, getattr(module, "__file__", None)
    if name == "__main__":
        return False
    if name.partition(".")[0] in sys.stdlib_module_names:
        return True
    origin = _origin_of(name)
    # Installed packages give modules other names than their files have; what is loaded by hand lies elsewhere.
    is_installed = file is not None and Path(file).is_relative_to(sys.prefix)
    return origin is not None and file is not None and (is_installed or Path(origin).resolve() == Path(file).resolve())


def _origin_of(name: str) -> str | None:
    """File that the import path has for a name; None where there is none."""
    path: Sequence[str] | None = None
    found: ModuleSpec | None = None
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        if end > 1 and path is None:
            return None
        specs = (finder.find_spec(".".join(parts[:end]), path) for finder in sys.meta_path)
        found = next((spec for spec in specs if spec is not None), None)
        path = None if found is None else found.submodule_search_locations
    return None if found is None else found.origin


def _culprits(contributions: Mapping[str, Any]) -> Iterator[tuple[str, Exception]]:
    """What cannot be pickled, as a name and the reason: a variable of a function where one is to blame."""
    for name, value in contributions.items():
        try:
            _dumped(value)
        except Exception as error:  # as above
            for variable, inner in _variables(value):
                try:
                    _dumped(inner)
                except Exception as reason:  # as above
                    yield f"{variable!r} of {name} ({type(inner).__name__})", reason
            yield name, error


def _variables(value: Any) -> Iterator[tuple[str, Any]]:
    """Variables outside of a function that it uses, and the attributes of an object."""
    function = inspect.unwrap(value) if callable(value) else value
    function = getattr(function, "__func__", function)
    if isinstance(function, FunctionType):
        used = inspect.getclosurevars(function)
        yield from {**used.nonlocals, **used.globals}.items()
    else:
        yield from getattr(value, "__dict__", {}).items()


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text[:MAX_REASON_CHARS].rstrip(".")
