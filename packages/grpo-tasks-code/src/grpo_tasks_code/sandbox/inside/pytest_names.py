"""What tests use of pytest, which is not there: `approx`, `raises` and `mark.parametrize`, by its rules."""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Complex
from types import SimpleNamespace
from typing import Any

_RELATIVE, _ABSOLUTE = 1e-6, 1e-12
"""Tolerances of `approx`, as in pytest."""


class approx:
    """A number, sequence, mapping or array that equals what is near it.

    Args:
        expected: Expected value.
        rel: Tolerance relative to it; 1e-6 if neither is given.
        abs: Absolute tolerance; 1e-12 if neither is given.
        nan_ok: Whether NaN equals NaN.
    """

    __array_ufunc__ = None

    def __init__(self, expected: Any, rel: float | None = None, abs: float | None = None, nan_ok: bool = False) -> None:
        self._expected, self._rel, self._abs, self._nan_ok = expected, rel, abs, nan_ok

    def __eq__(self, actual: object) -> bool:
        return self._is_near(self._expected, actual)

    def _is_near(self, expected: Any, found: Any) -> bool:
        expected, found = (part.tolist() if hasattr(part, "tolist") else part for part in (expected, found))
        if isinstance(expected, Mapping):
            has_keys = isinstance(found, Mapping) and found.keys() == expected.keys()
            return has_keys and all(self._is_near(value, found[key]) for key, value in expected.items())
        if isinstance(expected, (list, tuple)):
            has_length = isinstance(found, (list, tuple)) and len(found) == len(expected)
            return has_length and all(map(self._is_near, expected, found))
        if found == expected or not _is_number(expected) or not _is_number(found):
            return bool(found == expected)
        if expected != expected:
            return self._nan_ok and bool(found != found)
        relative = _RELATIVE if self._rel is None and self._abs is None else self._rel or 0.0
        tolerance = max(relative * abs(expected), _ABSOLUTE if self._abs is None else self._abs)
        return bool(abs(found - expected) <= tolerance < float("inf"))


def _is_number(value: Any) -> bool:
    return isinstance(value, Complex) and not isinstance(value, bool)


@contextmanager
def _raising(kinds: Any, match: str | None) -> Iterator[Any]:
    info = SimpleNamespace()
    try:
        yield info
    except kinds as error:
        if match is not None and re.search(match, str(error)) is None:
            raise AssertionError(f"{error} does not match {match}") from None
        info.value, info.type = error, type(error)
    else:
        raise AssertionError(f"DID NOT RAISE {kinds}")


def raises(expected: Any, *call: Any, match: str | None = None, **keywords: Any) -> Any:
    """Return a context that must raise, or make a call that must."""
    context = _raising(expected, match)
    if not call:
        return context
    with context as info:
        call[0](*call[1:], **keywords)
    return info


def _parametrize(names: str | Sequence[str], rows: Sequence[Any]) -> Callable[[Any], Any]:
    keys = re.findall(r"\w+", names) if isinstance(names, str) else [*names]

    def decorate(function: Any) -> Any:
        def run(*given: Any, **keywords: Any) -> None:
            for row in rows:
                function(*given, **dict(zip(keys, row if len(keys) > 1 else (row,), strict=True)), **keywords)

        return run

    return decorate


def _missing(name: str) -> Any:
    raise ImportError(f"pytest is not here, and what stands for it has no {name}")


def module() -> types.ModuleType:
    """Return the module `pytest` of a test; what else a test wants of it says nothing of the program."""
    found = types.ModuleType("pytest")
    mark = SimpleNamespace(parametrize=_parametrize)
    found.__dict__.update(approx=approx, raises=raises, mark=mark, __getattr__=_missing)
    return found
