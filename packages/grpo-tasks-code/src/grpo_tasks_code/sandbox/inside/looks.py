"""Content of objects that the program returned in place of data: the same at every look of a test.

    factors = f(12)
    assert all(map(is_prime, factors))      an object could have no items here
    assert math.prod(factors) == 12         and the item 12 here

An object decides what it reports, which data cannot: so its first report stays valid while a test only looks at it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import tee
from typing import Any

_OF_DATA = frozenset(dir(str)) | frozenset(dir(set))
_AMBIGUOUS = frozenset({"find", "index", "intersection", "union"})
"""Methods that other objects have too, and whose arguments tell what the answer must hold."""


class Looks:
    """Records what objects report in one test."""

    def __init__(self) -> None:
        self._seen: dict[int, dict[tuple[str, Any], Any]] = {}
        self._used: dict[int, set[str]] = {}

    def watch(self, number: int) -> None:
        """Watch an object that a function returned."""
        self._used.setdefault(number, set())

    def use(self, number: int, name: str = "") -> None:
        """Note that an object is passed on, changed, or asked for an attribute: its content may change from now on."""
        self._seen.pop(number, None)
        if number in self._used:
            self._used[number].add(name)

    def look(self, number: int, name: str, key: Any, ask: Callable[[], Any]) -> Any:
        """Return what an object's method reports, or reported before."""
        if type(key) not in (int, str, type(None)):  # a slice, or what the program would compare
            return ask()
        seen = self._seen.setdefault(number, {})
        if name == "__iter__":
            items = seen[name, key] if (name, key) in seen else ask()
            if not isinstance(items, Iterable):
                return items
            seen[name, key], items = tee(items)
            return items
        if (name, key) not in seen:
            seen[name, key] = ask()
        return seen[name, key]

    @property
    def lies(self) -> bool:
        """Whether the reports of an object contradict each other, or an object was used as only data should be."""
        return any(map(_is_contradictory, self._seen.values())) or any(
            used & _AMBIGUOUS and used <= _OF_DATA for used in self._used.values()
        )


def _is_contradictory(seen: dict[tuple[str, Any], Any]) -> bool:
    if len(seen) < 2 or ("__iter__", None) not in seen:
        return False
    items = list(seen["__iter__", None])
    for (name, key), value in seen.items():
        if name == "__len__" and value != len(items):
            return True
        if name == "__getitem__" and type(key) is int and type(value) in _SCALARS and not _holds(items, key, value):
            return True
    return False


_SCALARS = (int, float, str, bool, type(None))
"""Types that are compared here; objects inside data would decide their comparison themselves."""


def _holds(items: list[Any], key: int, value: Any) -> bool:
    """Return whether a value fits its key, in a sequence of these items or in a mapping of these keys."""
    if any(type(item) is int and item == key for item in items):
        return True
    item_there = items[key] if -len(items) <= key < len(items) else items
    return type(item_there) in _SCALARS and bool(item_there == value)
