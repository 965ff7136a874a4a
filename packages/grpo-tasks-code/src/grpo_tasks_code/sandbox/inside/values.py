"""Plain data as JSON and back: all that leaves a tested program, and all that its tests hand it.

What arrives is exactly of a built-in type, or one of the standard library's plain ones: an instance of a subclass
arrives as the base type, so nothing that a program overrides takes part in a comparison. None, booleans, strings, and
numbers that JSON has stand for themselves; the rest is [tag, content].

What is read may be forged, and the reader may be the process that trains. So decoding builds what the bytes spell out
and nothing more: an iterable is never expanded, nothing is computed that takes longer than reading it did, and nesting
and size are bounded, by the same numbers as in encoding.
"""

from __future__ import annotations

import datetime
import math
from array import array
from collections import Counter, OrderedDict, UserList, UserString, defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import islice
from typing import Any

MAX_DEPTH = 100
"""Of nesting: no honest answer is deeper, and every reader of JSON, repr and == manages it."""
MAX_VALUES = 1 << 20
"""Within one value, itself included: about as many as fit into one message."""
MAX_ITEMS = 10_000
"""Taken from an iterator, which may be endless."""
MAX_FRACTION_BITS = 1 << 15
"""Of a numerator or denominator: reducing a fraction takes time that grows with the square of its length."""
_MAX_DECIMAL_BITS = 2048
"""A longer integer travels in hexadecimal: Python reads no more than 4300 decimal digits."""
_MAX_COLLISIONS = 100
"""Of keys with one hash: each of n such is compared with all before it. Honest ones come in pairs, as -1 and -2 do."""


class NotPlainError(TypeError):
    """A value that is not plain data; the message is its type, or what is wrong with it."""


class Named(tuple[Any, ...]):
    """A tuple whose items have names, as an instance of a `namedtuple` arrives: without methods of its own.

    Attributes:
        _fields: The names, in the items' order.
    """

    _fields: tuple[str, ...]

    @classmethod
    def of(cls, fields: Sequence[str], items: Sequence[Any]) -> Named:
        """One with these names and items.

        Raises:
            ValueError: those are no names for these items.
        """
        if len(fields) != len(items) or not all(name.isidentifier() and name[:1] != "_" for name in fields):
            raise ValueError("not a plain value: not a name for each item")
        named = cls(items)
        named._fields = tuple(fields)
        return named

    def __getattribute__(self, name: str) -> Any:
        if name[:1] != "_" and name in self._fields:  # before `count` and `index`, which a field may be called
            return self[self._fields.index(name)]
        return super().__getattribute__(name)

    def _asdict(self) -> dict[str, Any]:
        return dict(zip(self._fields, self, strict=True))

    def _replace(self, **changes: Any) -> Named:
        return Named.of(self._fields, [*(self._asdict() | changes).values()])

    def __repr__(self) -> str:
        return f"({', '.join(f'{name}={item!r}' for name, item in self._asdict().items())})"


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


def encode(value: Any, other: Other = _no_other) -> Any:
    """Plain data as JSON.

    Args:
        value: The data.
        other: Called with what is not plain data in it, to encode it as a reference; keys must be plain.

    Raises:
        NotPlainError: it is not plain data, is nested too deep, or has too many parts.
    """
    return _Encoder(other).take(value, 0)


def decode(data: Any) -> Any:
    """Plain data from JSON, of the types that it had.

    Raises:
        ValueError: this is not what `encode` makes.
    """
    return _Decoder().make(data, 0)


class _Encoder:
    """Encodes one value.

    Args:
        other: As in `encode`.

    Attributes:
        left: How many values it may still have.
    """

    __slots__ = ("left", "other")

    def __init__(self, other: Other) -> None:
        self.left, self.other = MAX_VALUES, other

    def take(self, value: Any, depth: int) -> Any:
        """A value at a depth within the whole."""
        if depth > MAX_DEPTH:
            raise NotPlainError("value that is nested too deep")
        self.left -= 1
        if self.left < 0:
            raise NotPlainError(f"value of more than {MAX_VALUES} parts")
        if value is None or type(value) is bool:
            return value
        for base, take in _ENCODERS:
            if isinstance(value, base):
                return take(self, value, depth + 1)
        return ["reference", self.other(value)]

    def take_all(self, values: Any, depth: int) -> list[Any]:
        """Each of them."""
        return [self.take(value, depth) for value in values]

    def take_pairs(self, pairs: Any, depth: int) -> list[Any]:
        """Keys and what belongs to them."""
        other, self.other = self.other, _no_other
        keys = [self.take(key, depth) for key, _ in pairs]
        self.other = other
        return [[key, self.take(value, depth)] for key, (_, value) in zip(keys, pairs, strict=True)]


_Take = Callable[[_Encoder, Any, int], Any]


def _take_int(encoder: _Encoder, value: int, depth: int) -> Any:
    plain = int.__add__(value, 0)
    return plain if plain.bit_length() <= _MAX_DECIMAL_BITS else ["int", hex(plain)]


def _take_float(encoder: _Encoder, value: float, depth: int) -> Any:
    plain = float.__mul__(value, 1.0)
    return plain if math.isfinite(plain) else ["float", repr(plain)]


def _take_items(tag: str, base: Any) -> _Take:
    # By the base type's own iterator, which a subclass may have overridden.
    return lambda encoder, value, depth: [tag, encoder.take_all(base.__iter__(value), depth)]


def _take_unordered(tag: str, base: Any) -> _Take:
    def take(encoder: _Encoder, value: Any, depth: int) -> Any:
        items = list(base.__iter__(value))
        if _collide(items):
            raise NotPlainError(f"{tag} of values that share a hash")
        return [tag, encoder.take_all(items, depth)]

    return take


def _take_parts(tag: str, *names: str) -> _Take:
    return lambda encoder, value, depth: [tag, encoder.take_all([getattr(value, name) for name in names], depth)]


def _take_dict(encoder: _Encoder, value: dict[Any, Any], depth: int) -> Any:
    if _collide(list(dict.__iter__(value))):
        raise NotPlainError("dict of keys that share a hash")
    return ["dict", encoder.take_pairs(dict.items(value), depth)]


def _take_tuple(encoder: _Encoder, value: tuple[Any, ...], depth: int) -> Any:
    items = encoder.take_all(tuple.__iter__(value), depth)
    fields = getattr(value, "_fields", None) if type(value) is not tuple else None
    is_named = type(fields) is tuple and len(fields) == len(items) and all(type(name) is str for name in fields)
    return ["named", [list(fields), items]] if is_named and fields else ["tuple", items]


def _take_default(encoder: _Encoder, value: defaultdict[Any, Any], depth: int) -> Any:
    factory = value.default_factory
    name = next((name for name, kind in _FACTORIES.items() if kind is factory), None)
    return ["default", [name, _take_dict(encoder, value, depth)[1]]]


def _take_fraction(encoder: _Encoder, value: Fraction, depth: int) -> Any:
    parts = value.numerator, value.denominator
    if max(part.bit_length() for part in parts) > MAX_FRACTION_BITS:
        raise NotPlainError(f"Fraction of more than {MAX_FRACTION_BITS} bits")
    return ["fraction", encoder.take_all(parts, depth)]


_FACTORIES = {kind.__name__: kind for kind in (int, float, str, bool, list, tuple, dict, set, Counter, deque)}
"""Of a defaultdict, those that arrive; a function of the program's does not."""
_EMPTY: dict[Any, Any] = {}
_KEYS, _VALUES, _ITEMS = type(_EMPTY.keys()), type(_EMPTY.values()), type(_EMPTY.items())

_ENCODERS: tuple[tuple[type, _Take], ...] = (
    (int, _take_int),
    (float, _take_float),
    (str, lambda encoder, value, depth: str.__str__(value)),
    (list, _take_items("list", list)),
    (tuple, _take_tuple),
    (Counter, lambda encoder, value, depth: ["counter", _take_dict(encoder, value, depth)[1]]),  # before its base
    (OrderedDict, lambda encoder, value, depth: ["ordered", _take_dict(encoder, value, depth)[1]]),
    (defaultdict, _take_default),
    (dict, _take_dict),
    (set, _take_unordered("set", set)),
    (frozenset, _take_unordered("frozenset", frozenset)),
    (complex, _take_parts("complex", "real", "imag")),
    (bytes, lambda encoder, value, depth: ["bytes", bytes(value).hex()]),
    (bytearray, lambda encoder, value, depth: ["bytearray", bytes(value).hex()]),
    (range, _take_parts("range", "start", "stop", "step")),
    (deque, _take_items("deque", deque)),
    (Decimal, lambda encoder, value, depth: ["decimal", str(value)]),
    (Fraction, _take_fraction),
    (datetime.datetime, lambda encoder, value, depth: ["datetime", value.isoformat()]),  # before its base
    (datetime.date, lambda encoder, value, depth: ["date", value.isoformat()]),
    (datetime.time, lambda encoder, value, depth: ["time", value.isoformat()]),
    (datetime.timedelta, _take_parts("timedelta", "days", "seconds", "microseconds")),
    (_KEYS, _take_unordered("keys", _KEYS)),
    (_VALUES, _take_items("values", _VALUES)),
    (_ITEMS, lambda encoder, value, depth: ["items", _take_dict(encoder, dict(value), depth)[1]]),
    (array, lambda encoder, value, depth: ["array", [value.typecode, encoder.take_all(array.__iter__(value), depth)]]),
    (memoryview, lambda encoder, value, depth: ["bytes", bytes(value).hex()]),
    (UserString, lambda encoder, value, depth: str.__str__(value.data)),
    (UserList, lambda encoder, value, depth: encoder.take(value.data, depth)),
    # ChainMap, UserDict, MappingProxyType: each is equal to a dict of the same content
    (Mapping, lambda encoder, value, depth: _take_dict(encoder, dict(value.items()), depth)),
    (type(...), lambda encoder, value, depth: ["ellipsis", None]),
    (Iterator, lambda encoder, value, depth: ["iterator", encoder.take_all(islice(value, MAX_ITEMS + 1), depth)]),
)
"""Base type and how its values are taken; the first that fits."""


class _Decoder:
    """Decodes one value.

    Attributes:
        left: How many values it may still have.
        is_key: Whether what comes is part of a dictionary's key.
    """

    __slots__ = ("is_key", "left")

    def __init__(self) -> None:
        self.left, self.is_key = MAX_VALUES, False

    def make(self, data: Any, depth: int) -> Any:
        """The value at a depth within the whole."""
        self.left -= 1
        if depth > MAX_DEPTH or self.left < 0:
            raise ValueError("not a plain value: too deep or too long")
        if data is None or isinstance(data, (bool, int, float, str)):
            return data
        match data:
            case [str(tag), content] if tag in _DECODERS:
                kind, make = _DECODERS[tag]
                if isinstance(content, kind):
                    try:
                        return make(self, content, depth + 1)
                    except (TypeError, LookupError, ArithmeticError) as error:
                        raise ValueError(f"not a plain value: {type(error).__name__}") from None
        raise ValueError("not a plain value")

    def all(self, content: list[Any], depth: int) -> list[Any]:
        """Each value of a list."""
        return [self.make(item, depth) for item in content]

    def of_type(self, kind: type, content: list[Any], depth: int) -> list[Any]:
        """Likewise, where all must be of a type."""
        items = self.all(content, depth)
        if not all(type(item) is kind for item in items):
            raise ValueError(f"not a plain value: not all are {kind.__name__}")
        return items

    def keys(self, content: list[Any], depth: int) -> list[Any]:
        """Decode each value of a list, for a hash table."""
        keys = self.all(content, depth)
        if _collide(keys):
            raise ValueError("not a plain value: keys that share a hash")
        return keys

    def dict(self, content: list[Any], depth: int) -> dict[Any, Any]:
        """From pairs."""
        if not all(isinstance(pair, list) and len(pair) == 2 for pair in content):
            raise ValueError("not a plain value: not pairs")
        outer, self.is_key = self.is_key, True
        keys = self.keys([key for key, _ in content], depth)
        self.is_key = outer
        return dict(zip(keys, [self.make(value, depth) for _, value in content], strict=True))

    def reference(self, content: Any, depth: int) -> Reference:
        """To what the sender has; no part of a key."""
        if self.is_key:
            raise ValueError("not a plain value: a reference in a key")
        return Reference(content)


def _collide(keys: Collection[Any]) -> bool:
    """Whether so many share a hash that a table of them would take hours to build."""
    return len(keys) > _MAX_COLLISIONS and max(Counter(map(hash, keys)).values()) > _MAX_COLLISIONS


def _fraction(decoder: _Decoder, content: list[Any], depth: int) -> Fraction:
    numerator, denominator = decoder.of_type(int, content, depth)
    if max(numerator.bit_length(), denominator.bit_length()) > MAX_FRACTION_BITS:
        raise ValueError("not a plain value: a long fraction")
    return Fraction(numerator, denominator)


def _named(decoder: _Decoder, content: list[Any], depth: int) -> Named:
    fields, items = content
    if not (isinstance(fields, list) and isinstance(items, list) and all(isinstance(name, str) for name in fields)):
        raise ValueError("not a plain value: no names")
    return Named.of(fields, decoder.all(items, depth))


def _default(decoder: _Decoder, content: list[Any], depth: int) -> defaultdict[Any, Any]:
    name, pairs = content
    if not isinstance(pairs, list):
        raise ValueError("not a plain value: not pairs")
    return defaultdict(None if name is None else _FACTORIES[name], decoder.dict(pairs, depth))


def _array(decoder: _Decoder, content: list[Any], depth: int) -> array[Any]:
    typecode, items = content
    if not (isinstance(typecode, str) and isinstance(items, list)):
        raise ValueError("not a plain value: no array")
    return array(typecode, decoder.all(items, depth))


def _iterator(decoder: _Decoder, content: list[Any], depth: int) -> Iterator[Any]:
    items = decoder.all(content, depth)

    def iterate() -> Iterator[Any]:
        yield from items[:MAX_ITEMS]
        if len(items) > MAX_ITEMS:
            raise ValueError(f"the test wants more than {MAX_ITEMS} items of an iterator")

    return iterate()


_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}

_DECODERS: dict[str, tuple[type, Callable[[_Decoder, Any, int], Any]]] = {
    "int": (str, lambda decoder, content, depth: int(content, 16)),
    "float": (str, lambda decoder, content, depth: _NOT_FINITE[content]),
    "list": (list, _Decoder.all),
    "tuple": (list, lambda decoder, content, depth: tuple(decoder.all(content, depth))),
    "named": (list, _named),
    "dict": (list, _Decoder.dict),
    "counter": (list, lambda decoder, content, depth: Counter(decoder.dict(content, depth))),
    "ordered": (list, lambda decoder, content, depth: OrderedDict(decoder.dict(content, depth))),
    "default": (list, _default),
    "set": (list, lambda decoder, content, depth: set(decoder.keys(content, depth))),
    "frozenset": (list, lambda decoder, content, depth: frozenset(decoder.keys(content, depth))),
    "complex": (list, lambda decoder, content, depth: complex(*decoder.of_type(float, content, depth))),
    "bytes": (str, lambda decoder, content, depth: bytes.fromhex(content)),
    "bytearray": (str, lambda decoder, content, depth: bytearray.fromhex(content)),
    "range": (list, lambda decoder, content, depth: range(*decoder.of_type(int, content, depth))),
    "deque": (list, lambda decoder, content, depth: deque(decoder.all(content, depth))),
    "decimal": (str, lambda decoder, content, depth: Decimal(content)),
    "fraction": (list, _fraction),
    "datetime": (str, lambda decoder, content, depth: datetime.datetime.fromisoformat(content)),
    "date": (str, lambda decoder, content, depth: datetime.date.fromisoformat(content)),
    "time": (str, lambda decoder, content, depth: datetime.time.fromisoformat(content)),
    "timedelta": (list, lambda decoder, content, depth: datetime.timedelta(*decoder.of_type(int, content, depth))),
    "keys": (list, lambda decoder, content, depth: dict.fromkeys(decoder.keys(content, depth)).keys()),
    "values": (list, lambda decoder, content, depth: dict(enumerate(decoder.all(content, depth))).values()),
    "items": (list, lambda decoder, content, depth: decoder.dict(content, depth).items()),
    "array": (list, _array),
    "ellipsis": (type(None), lambda decoder, content, depth: ...),
    "iterator": (list, _iterator),
    "reference": (object, _Decoder.reference),
}
"""The type of a tag's content, and what is made of it."""
