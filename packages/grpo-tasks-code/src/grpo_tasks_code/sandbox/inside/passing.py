"""Passing of values between a test's process and the program's: plain data by value, the rest by reference.

Instances of classes that both processes have from the set-up travel by value too: a parcel is [values, records], where
a record is an instance's class and attributes, so that a list of nodes or a cycle keeps its structure. Other objects
stay in their process, and the other side gets a proxy.
"""

from __future__ import annotations
import __future__

import enum
import types
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from grpo_tasks_code.sandbox.inside.values import NotPlainError, decode, encode, hides_method

TEST_FILE = "<test>"
"""File name of set-up and tests in tracebacks."""

_RECORD, _MEMBER, _CLASS = "record", "member", "class"

Parcel = list[Any]


class Passing:
    """Packs and unpacks values in one process.

    Args:
        refer: Returns the reference to send for a value that stays here; raises NotPlainError if there is none.
        resolve: Returns the value of a received reference; raises ValueError if there is none.

    Attributes:
        classes: Classes whose instances travel by value, by name.
    """

    def __init__(self, refer: Callable[[Any], Any], resolve: Callable[[Any], Any]) -> None:
        self._refer, self._resolve = refer, resolve
        self.classes: dict[str, type] = {}

    def pack(self, values: Sequence[Any], otherwise: Callable[[Any], Any] | None = None) -> Parcel:
        """Pack values for the other side.

        Args:
            values: Values to pack.
            otherwise: Returns a substitute for a value that cannot be packed.

        Raises:
            NotPlainError: a value cannot be packed and has no substitute.
        """
        instances: list[Any] = []
        numbers: dict[int, int] = {}

        def other(value: Any) -> Any:
            if isinstance(value, type) and self._class(value.__name__) is value:
                return [_CLASS, value.__name__]
            kind = type(value).__name__
            if self._class(kind) is not type(value):
                return self._refer(value)
            if isinstance(value, enum.Enum):
                return [_MEMBER, kind, value.name]
            if id(value) not in numbers:
                numbers[id(value)] = len(instances)
                instances.append(value)
            return [_RECORD, numbers[id(value)]]

        packed = []
        for value in values:
            try:
                packed.append(encode(value, other=other))
            except NotPlainError:
                if otherwise is None:
                    raise
                packed.append(encode(otherwise(value), other=other))
        # The list grows while it is walked, by the instances that an instance refers to.
        return [
            packed,
            [[type(instance).__name__, encode(attributes(instance), other=other)] for instance in instances],
        ]

    def unpack(self, parcel: Any) -> list[Any]:
        """Unpack values from the other side.

        Raises:
            ValueError: the parcel was not made by `pack`.
        """
        match parcel:
            case [list(packed), list(records)]:
                pass
            case _:
                raise ValueError("not a parcel")
        try:
            blanks: list[Any] = [_blank(self._class(name)) for name, _ in records]

            def resolved(content: Any) -> Any:
                match content:
                    case ["record", int(index)] if 0 <= index < len(blanks):
                        return blanks[index]
                    case ["class", str(name)] if (shared := self._class(name)) is not None:
                        return shared
                    case ["member", str(name), str(member)] if issubclass(kinds := self.classes[name], enum.Enum):
                        return kinds[member]
                return self._resolve(content)

            for blank, (_, content) in zip(blanks, records, strict=True):
                _check_attributes(content, type(blank))
                for name, item in decode(content, resolved).items():
                    object.__setattr__(blank, name, item)
            return [decode(value, resolved) for value in packed]
        except (TypeError, LookupError, AttributeError) as error:
            raise ValueError(f"not a plain value: {type(error).__name__}") from None

    def _class(self, name: str) -> type | None:
        return self.classes.get(name, SimpleNamespace if name == SimpleNamespace.__name__ else None)


def _check_attributes(content: Any, kind: type) -> None:
    """Refuse encoded attributes that would hide a method of the class, or of data."""
    match content:
        case ["dict", list(pairs)]:
            for name, item in pairs:
                if name.startswith("__") or callable(getattr(kind, name, None)) or hides_method(name, item):
                    raise ValueError("not an attribute")
        case _:
            raise ValueError("not attributes")


def _blank(kind: type | None) -> Any:
    """Return an instance without attributes."""
    if kind is None:
        raise ValueError("an instance of no class")
    return SimpleNamespace() if kind is SimpleNamespace else object.__new__(kind)


def compiled(source: str) -> types.CodeType:
    """Compile set-up or a test; annotations are not evaluated, since their names may be the program's."""
    code: types.CodeType = compile(
        source, TEST_FILE, "exec", flags=__future__.annotations.compiler_flag, dont_inherit=True
    )
    return code


def attributes(instance: Any) -> dict[str, Any]:
    """Return an instance's attributes, including those in slots."""
    slots = {
        name: getattr(instance, name)
        for base in type(instance).__mro__
        for name in _slots_of(base)
        if hasattr(instance, name)
    }
    return slots | dict(getattr(instance, "__dict__", {}))


def _slots_of(kind: type) -> Sequence[str]:
    slots = kind.__dict__.get("__slots__", ())
    names = [slots] if isinstance(slots, str) else list(slots if isinstance(slots, Mapping) else tuple(slots))
    return [name for name in names if name not in ("__dict__", "__weakref__")]
