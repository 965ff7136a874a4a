"""What tests use of pytest, which is not there: `approx`, `raises`, `warns` and `mark.parametrize`, by its rules."""

from __future__ import annotations

import re
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
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
        expected: Any = self._expected.tolist() if hasattr(self._expected, "tolist") else self._expected
        found: Any = actual.tolist() if hasattr(actual, "tolist") else actual
        if isinstance(expected, Mapping):
            is_alike = isinstance(found, Mapping) and found.keys() == expected.keys()
            return is_alike and all(self._like(value) == found[key] for key, value in expected.items())
        if isinstance(expected, Sequence) and not isinstance(expected, (str, bytes)):
            is_alike = isinstance(found, Sequence) and len(found) == len(expected)
            return is_alike and all(self._like(value) == part for value, part in zip(expected, found, strict=True))
        if found == expected:
            return True
        if isinstance(expected, (bool, str, bytes, type(None))) or not isinstance(found, (int, float, complex)):
            return False
        if expected != expected:
            return self._nan_ok and found != found
        relative = _RELATIVE if self._rel is None and self._abs is None else self._rel or 0.0
        tolerance = max(relative * abs(expected), _ABSOLUTE if self._abs is None else self._abs)
        return bool(abs(found - expected) <= tolerance < float("inf"))

    def _like(self, expected: Any) -> approx:
        return approx(expected, self._rel, self._abs, self._nan_ok)


class _Raises:
    def __init__(self, kinds: Any, match: str | None = None) -> None:
        self._kinds, self._match = kinds, match
        self.value: Any = None

    def __enter__(self) -> _Raises:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: object) -> bool:
        if error is None:
            raise AssertionError(f"DID NOT RAISE {self._kinds}")
        if not isinstance(error, self._kinds):
            return False
        if self._match is not None and re.search(self._match, str(error)) is None:
            raise AssertionError(f"{error} does not match {self._match}")
        self.value, self.type = error, kind
        return True


def raises(expected: Any, *call: Any, match: str | None = None, **keywords: Any) -> _Raises:
    """Return a context that must raise, or make a call that must."""
    context = _Raises(expected, match)
    if call:
        with context:
            call[0](*call[1:], **keywords)
    return context


class warns(warnings.catch_warnings):
    """A context that must give a warning."""

    def __init__(self, expected: Any = Warning, match: str | None = None) -> None:
        super().__init__(record=True)
        self._expected, self._match = expected, match

    def __enter__(self) -> Any:
        self._found = super().__enter__()
        warnings.simplefilter("always")
        return self._found

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        found = [each for each in self._found or () if issubclass(each.category, self._expected)]
        if error[0] is None and not any(re.search(self._match or "", str(each.message)) for each in found):
            raise AssertionError(f"DID NOT WARN {self._expected}")


def _parametrize(names: str | Sequence[str], rows: Sequence[Any], **_: Any) -> Callable[[Any], Any]:
    keys = re.findall(r"\w+", names) if isinstance(names, str) else [*names]

    def decorate(function: Any) -> Any:
        def run(*given: Any, **keywords: Any) -> None:
            for row in rows:
                values = row.values if isinstance(row, SimpleNamespace) else row if len(keys) > 1 else (row,)
                function(*given, **dict(zip(keys, values, strict=True)), **keywords)

        return run

    return decorate


def module() -> types.ModuleType:
    """Return the module `pytest` of a test."""
    found = types.ModuleType("pytest")
    found.__dict__.update(approx=approx, raises=raises, warns=warns, mark=SimpleNamespace(parametrize=_parametrize))
    found.__dict__.update(param=lambda *values, **_: SimpleNamespace(values=values))
    return found
