"""What a program does to the arguments of its calls: seen by a test that looks for it, and by nothing else.

    assert f(xs) == sorted(xs)            sorted(xs) is of what the test made, whatever f did to its own copy
    sort(xs); assert xs == [1, 2, 3]      a call for what it does to its argument
    n = pack(xs); assert xs[:n] == [1]    an assertion about the argument, and not about the answer

Otherwise a program could answer with what it turned the argument, and thereby the expected value, into.
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
    """An argument, its content by the test, and what the program made of its copy."""

    def __init__(self, argument: Any, before: Any, after: Any) -> None:
        self.argument, self.before, self.after = argument, before, after

    @property
    def is_untouched(self) -> bool:
        """Whether the test has left the argument alone since."""
        now = _content(self.argument)
        if isinstance(now, (bytearray, array)):
            return bool(now == self.before)
        if isinstance(now, set):
            return set(map(id, now)) == set(map(id, self.before))
        # Not by ==, which a test's own objects may define as they like.
        return len(now) == len(self.before) and all(map(operator.is_, _flat(now), _flat(self.before)))


class Mutations:
    """Those of one test."""

    def __init__(self) -> None:
        self._changes: dict[int, _Change] = {}

    def current(self, argument: Any) -> Any:
        """What the next call gets for an argument: what the last one left of it, unless the test has changed it."""
        change = self._changes.get(id(argument))
        if change is None:
            return argument
        if not change.is_untouched:
            del self._changes[id(argument)]
            return argument
        return change.after

    def note(self, argument: Any, after: Any) -> None:
        """Remember what a call made of an argument; of an instance of a subclass, as its base."""
        base = next((base for base in _MUTABLE if isinstance(argument, base)), type(argument))
        if isinstance(after, base) and (base in _MUTABLE or attributes(argument)):
            self._changes[id(argument)] = _Change(argument, _content(argument), after)

    def apply(self, arguments: Iterable[Any]) -> None:
        """Give arguments the content that the program gave them."""
        for argument in arguments:
            change = self._changes.pop(id(argument), None)
            if change is not None and change.is_untouched:
                _fill(argument, _content(change.after))

    def before_own(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A built-in function, which may change its arguments or the object it belongs to, as the test's own."""
        if not self._changes or type(function) is not type(len):
            return function

        def call(*arguments: Any, **keywords: Any) -> Any:
            self.apply([getattr(function, "__self__", None), *arguments, *keywords.values()])
            return function(*arguments, **keywords)

        return call

    def begin(self) -> list[_Change]:
        """Let the test see what the program did, up to `end`."""
        shown = [change for change in self._changes.values() if change.is_untouched]
        for change in shown:
            _fill(change.argument, _content(change.after))
        return shown

    def end(self, shown: list[_Change], value: Any) -> Any:
        """Give arguments their content back, and return the value."""
        for change in shown:
            _fill(change.argument, change.before)
        return value


def _content(argument: Any) -> Any:
    """A copy of what it holds; of an instance, its attributes."""
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
