"""Changes that a program makes to its arguments: visible to assertions about the arguments, and to nothing else.

    assert f(xs) == sorted(xs)            sorted(xs) uses the test's own value, whatever f did to its copy
    sort(xs); assert xs == [1, 2, 3]      a call for its effect on the argument
    n = pack(xs); assert xs[:n] == [1]    an assertion about the argument, and not about the answer

Otherwise a program could change the argument, and thereby the expected value, to match its answer.
"""

from __future__ import annotations

import operator
from array import array
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from grpo_tasks_code.sandbox.inside.passing import attributes

_MUTABLE = (list, dict, set, bytearray, deque, array)


class _Change:
    """An argument with its content before a call, and the program's copy after it."""

    def __init__(self, argument: Any, before: Any, after: Any) -> None:
        self.argument, self.before, self.after = argument, before, after

    @property
    def is_untouched(self) -> bool:
        """Whether the test has not changed the argument since."""
        now = _content(self.argument)
        if isinstance(now, (bytearray, array)):
            return bool(now == self.before)
        if isinstance(now, set):
            return set(map(id, now)) == set(map(id, self.before))
        # By identity, since a test's own objects may define == in any way.
        return len(now) == len(self.before) and all(map(operator.is_, _flat(now), _flat(self.before)))


class Mutations:
    """Changes of arguments in one test."""

    def __init__(self) -> None:
        self._changes: dict[int, _Change] = {}

    def current(self, argument: Any) -> Any:
        """Return what the next call gets for an argument: the last call's copy, unless the test changed it."""
        change = self._changes.get(id(argument))
        if change is None:
            return argument
        if not change.is_untouched:
            del self._changes[id(argument)]
            return argument
        return change.after

    def note(self, argument: Any, after: Any) -> None:
        """Record an argument after a call; instances of a subclass count as their base."""
        base = next((base for base in _MUTABLE if isinstance(argument, base)), type(argument))
        if isinstance(after, base) and (base in _MUTABLE or attributes(argument)):
            self._changes[id(argument)] = _Change(argument, _content(argument), after)

    def apply(self, arguments: Iterable[Any]) -> None:
        """Apply the program's changes to the test's arguments."""
        for argument in arguments:
            change = self._changes.pop(id(argument), None)
            if change is not None and change.is_untouched:
                _fill(argument, _content(change.after))

    def before_own(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a built-in function, so that pending changes are applied first to its arguments and its object."""
        if not self._changes or type(function) is not type(len):
            return function

        def call(*arguments: Any, **keywords: Any) -> Any:
            self.apply([getattr(function, "__self__", None), *arguments, *keywords.values()])
            return function(*arguments, **keywords)

        return call

    def begin(self) -> list[_Change]:
        """Show the program's changes to the test, until `end`."""
        shown = [change for change in self._changes.values() if change.is_untouched]
        for change in shown:
            _fill(change.argument, _content(change.after))
        return shown

    def end(self, shown: list[_Change], value: Any) -> Any:
        """Restore the arguments, and return the value."""
        for change in shown:
            _fill(change.argument, change.before)
        return value


def _content(argument: Any) -> Any:
    """Return a copy of a container's content, or of an instance's attributes."""
    if isinstance(argument, (list, bytearray, array)):
        return argument[:]
    if isinstance(argument, (dict, set, deque)):
        return argument.copy()
    return attributes(argument)


def _flat(content: Any) -> list[Any]:
    if isinstance(content, dict):
        return [part for item in content.items() for part in item]
    return [*content]


def _fill(argument: Any, content: Any) -> None:
    if isinstance(argument, (list, bytearray, array)):
        argument[:] = content
    elif isinstance(argument, deque):
        argument.clear()
        argument.extend(content)
    elif isinstance(argument, (dict, set)):
        argument.clear()
        argument.update(content)
    else:
        for name in attributes(argument).keys() - content.keys():
            object.__delattr__(argument, name)
        for name, item in content.items():
            object.__setattr__(argument, name, item)
