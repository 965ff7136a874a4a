"""Plain data as JSON and back: all that leaves a tested program, and all that its tests hand it.

What arrives is exactly of a built-in type, or one of the standard library's plain ones: an instance of a subclass
arrives as the base type, so nothing that a program overrides takes part in a comparison. None, booleans, strings, and
numbers that JSON has stand for themselves; the rest is [tag, content].
"""

from __future__ import annotations

import datetime
import math
from array import array
from collections import UserList, UserString, deque
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from itertools import islice
from operator import index
from typing import Any

MAX_DEPTH = 100
"""Of nesting: no honest answer is deeper, and every reader of JSON, repr and == manages it."""
MAX_ITEMS = 10_000
"""Taken from an iterator, which may be endless."""
_MAX_DECIMAL_BITS = 2048
"""A longer integer travels in hexadecimal: Python reads no more than 4300 decimal digits."""


class NotPlainError(TypeError):
    """A value that is not plain data; the message is its type."""


class Reference:
    """What is not plain data and stays in its process: the other side says how to reach it.

    Args:
        content: JSON that both sides understand.
    """

    def __init__(self, content: Any) -> None:
        self.content = content


Other = Callable[[Any], Any]
"""Content of a reference to what is not plain data; raises NotPlainError where there is none."""


def _no_other(value: Any) -> Any:
    raise NotPlainError(type(value).__name__)


def encode(value: Any, depth: int = 0, other: Other = _no_other) -> Any:
    """Plain data as JSON.

    Args:
        value: The data.
        depth: Of its nesting so far.
        other: Called with what is not plain data in it, to encode it as a reference.

    Raises:
        NotPlainError: it is not plain data, or nested too deep.
    """
    if value is None or type(value) is bool:
        return value
    if depth > MAX_DEPTH:
        raise NotPlainError("nested too deep")
    for base, take in _ENCODERS:
        if isinstance(value, base):
            return take(value, depth + 1, other)
    return ["reference", other(value)]


def _take_int(value: int, depth: int, other: Other) -> Any:
    plain = int.__add__(value, 0)
    return plain if plain.bit_length() <= _MAX_DECIMAL_BITS else ["int", hex(plain)]


def _take_float(value: float, depth: int, other: Other) -> Any:
    plain = float.__mul__(value, 1.0)
    return plain if math.isfinite(plain) else ["float", repr(plain)]


def _take_items(tag: str, base: Any) -> Callable[[Any, int, Other], Any]:
    # By the base type's own iterator, which a subclass may have overridden.
    return lambda value, depth, other: [tag, [encode(item, depth, other) for item in base.__iter__(value)]]


def _take_dict(value: dict[Any, Any], depth: int, other: Other) -> Any:
    return ["dict", [[encode(key, depth), encode(item, depth, other)] for key, item in dict.items(value)]]


def _take_mapping(value: Mapping[Any, Any], depth: int, other: Other) -> Any:
    return _take_dict(dict(value.items()), depth, other)


_EMPTY: dict[Any, Any] = {}
_KEYS, _VALUES, _ITEMS = type(_EMPTY.keys()), type(_EMPTY.values()), type(_EMPTY.items())

_ENCODERS: tuple[tuple[type, Callable[[Any, int, Other], Any]], ...] = (
    (int, _take_int),
    (float, _take_float),
    (str, lambda value, depth, other: str.__str__(value)),
    (list, _take_items("list", list)),
    (tuple, _take_items("tuple", tuple)),
    (dict, _take_dict),
    (set, _take_items("set", set)),
    (frozenset, _take_items("frozenset", frozenset)),
    (complex, lambda value, depth, other: ["complex", [encode(value.real, depth), encode(value.imag, depth)]]),
    (bytes, lambda value, depth, other: ["bytes", bytes(value).hex()]),
    (bytearray, lambda value, depth, other: ["bytearray", bytes(value).hex()]),
    (
        range,
        lambda value, depth, other: ["range", [encode(part, depth) for part in (value.start, value.stop, value.step)]],
    ),
    (deque, _take_items("deque", deque)),
    (Decimal, lambda value, depth, other: ["decimal", str(value)]),
    (
        Fraction,
        lambda value, depth, other: ["fraction", [encode(value.numerator, depth), encode(value.denominator, depth)]],
    ),
    (datetime.datetime, lambda value, depth, other: ["datetime", value.isoformat()]),  # before its base
    (datetime.date, lambda value, depth, other: ["date", value.isoformat()]),
    (datetime.time, lambda value, depth, other: ["time", value.isoformat()]),
    (datetime.timedelta, lambda value, depth, other: ["timedelta", [value.days, value.seconds, value.microseconds]]),
    (_KEYS, _take_items("keys", _KEYS)),
    (_VALUES, _take_items("values", _VALUES)),
    (_ITEMS, _take_items("items", _ITEMS)),
    (array, lambda value, depth, other: ["array", [value.typecode, encode(list(value), depth)]]),
    (memoryview, lambda value, depth, other: ["bytes", bytes(value).hex()]),
    (UserString, lambda value, depth, other: str.__str__(value.data)),
    (UserList, lambda value, depth, other: encode(value.data, depth, other)),
    (Mapping, _take_mapping),  # ChainMap, UserDict, MappingProxyType: each is equal to a dict of the same content
    (type(...), lambda value, depth, other: ["ellipsis", None]),
    (
        Iterator,
        lambda value, depth, other: ["iterator", [encode(item, depth, other) for item in islice(value, MAX_ITEMS + 1)]],
    ),
)
"""Base type and how its values are taken; the first that fits."""


def decode(data: Any, depth: int = 0) -> Any:
    """Plain data from JSON, of the types that it had.

    Raises:
        ValueError: this is not what `encode` makes.
    """
    if data is None or isinstance(data, (bool, int, float, str)):
        return data
    if depth > MAX_DEPTH + 1 or not (isinstance(data, list) and len(data) == 2 and isinstance(data[0], str)):
        raise ValueError("not a plain value")
    tag, content = data
    try:
        return _DECODERS[tag](content, depth + 1)
    except (TypeError, LookupError, AttributeError, ArithmeticError) as error:
        raise ValueError(f"not a plain value: {type(error).__name__}") from None


def _items(content: Any, depth: int) -> list[Any]:
    if not isinstance(content, list):
        raise ValueError("not a plain value")
    return [decode(item, depth) for item in content]


def _iterator(content: Any, depth: int) -> Iterator[Any]:
    items = _items(content, depth)

    def iterate() -> Iterator[Any]:
        yield from items[:MAX_ITEMS]
        if len(items) > MAX_ITEMS:
            raise ValueError(f"the test wants more than {MAX_ITEMS} items of an iterator")

    return iterate()


_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}

_DECODERS: dict[str, Callable[[Any, int], Any]] = {
    "int": lambda content, depth: int(content, 16),
    "float": lambda content, depth: _NOT_FINITE[content],
    "list": _items,
    "tuple": lambda content, depth: tuple(_items(content, depth)),
    "dict": lambda content, depth: {decode(key, depth): decode(item, depth) for key, item in content},
    "set": lambda content, depth: set(_items(content, depth)),
    "frozenset": lambda content, depth: frozenset(_items(content, depth)),
    "complex": lambda content, depth: complex(*_items(content, depth)),
    "bytes": lambda content, depth: bytes.fromhex(content),
    "bytearray": lambda content, depth: bytearray.fromhex(content),
    "range": lambda content, depth: range(*_items(content, depth)),
    "deque": lambda content, depth: deque(_items(content, depth)),
    "decimal": lambda content, depth: Decimal(content),
    "fraction": lambda content, depth: Fraction(
        *map(index, _items(content, depth))
    ),  # of text it would read 1e999999999
    "datetime": lambda content, depth: datetime.datetime.fromisoformat(content),
    "date": lambda content, depth: datetime.date.fromisoformat(content),
    "time": lambda content, depth: datetime.time.fromisoformat(content),
    "timedelta": lambda content, depth: datetime.timedelta(*_items(content, depth)),
    "keys": lambda content, depth: dict.fromkeys(_items(content, depth)).keys(),
    "values": lambda content, depth: dict(enumerate(_items(content, depth))).values(),
    "array": lambda content, depth: array(content[0], decode(content[1], depth)),
    "items": lambda content, depth: dict(_items(content, depth)).items(),
    "ellipsis": lambda content, depth: ...,
    "reference": lambda content, depth: Reference(content),
    "iterator": _iterator,
}
