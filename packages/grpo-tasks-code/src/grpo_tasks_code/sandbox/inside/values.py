"""Plain data as JSON and back: everything that a tested program sends, and that its tests send to it.

Decoded values are exactly of a built-in type, or a plain type of the standard library: an instance of a subclass
arrives as its base type, so nothing that a program overrides takes part in a comparison. None, booleans, strings, and
numbers of JSON represent themselves; everything else is [tag, content].

The input may be forged, and the training process may read it. So iterables are never expanded, nothing takes longer to
compute than to read, and nesting and size have the same limits as in encoding.
"""

from __future__ import annotations

import datetime
import math
import reprlib
from array import array
from collections import Counter, OrderedDict, UserList, UserString, defaultdict, deque
from collections.abc import Callable, Collection, Iterator, KeysView, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from importlib import import_module
from itertools import islice
from typing import Any

MAX_DEPTH = 100
"""Depth of nesting: no honest answer is deeper, and JSON readers, repr and == can handle it."""
MAX_VALUES = 1 << 20
"""Parts of one value, itself included: about as many as fit into one message."""
MAX_ITEMS = 10_000
"""Items taken from an iterator, which may be endless."""
MAX_FRACTION_BITS = 1 << 15
"""Bits of a numerator or denominator: the time to reduce a fraction grows with the square of its length."""
_MAX_DECIMAL_BITS = 2048
"""A longer integer travels in hexadecimal: Python reads no more than 4300 decimal digits."""
_MAX_COLLISIONS = 100
"""Keys with the same hash: n of them take n² comparisons. Honest ones come in pairs, such as -1 and -2."""


class NotPlainError(TypeError):
    """A value that is not plain data; the message is its type, or what is wrong with it."""


class Named(tuple[Any, ...]):
    """A tuple with named items: the decoded form of a `namedtuple`, without methods of its own.

    Attributes:
        _fields: Names of the items, in order.
    """

    _fields: tuple[str, ...]

    @classmethod
    def of(cls, fields: Sequence[str], items: Sequence[Any]) -> Named:
        """Build a tuple from names and items.

        Raises:
            ValueError: the names do not fit the items.
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
    """A reference to an object that is not plain data and stays in its process, if nothing resolves it.

    Args:
        content: JSON that identifies the object.
    """

    def __init__(self, content: Any) -> None:
        self.content = content


Other = Callable[[Any], Any]
"""Returns the content of a reference to an object that is not plain data; raises NotPlainError if there is none."""


def _no_other(value: Any) -> Any:
    raise NotPlainError(type(value).__name__)


def encode(value: Any, other: Other = _no_other) -> Any:
    """Encode plain data as JSON.

    Args:
        value: Value to encode.
        other: Called with parts that are not plain data, to encode them as references; keys must be plain.

    Raises:
        NotPlainError: the value is not plain data, is nested too deep, or has too many parts.
    """
    return _Encoder(other).take(value, 0)


METHODS_OF_DATA = frozenset(
    name for kind in (str, bytes, int, float, list, tuple, dict, set, deque, Counter, Decimal) for name in dir(kind)
)


def hides_method(name: str, data: Any) -> bool:
    """Return whether an encoded item of this name would look like a method of plain data, which the program answers."""
    return isinstance(data, list) and data[:1] == ["reference"] and name in METHODS_OF_DATA


Resolve = Callable[[Any], Any]
"""Returns the value of a reference from its content; raises ValueError if there is none."""


def decode(data: Any, resolve: Resolve = Reference) -> Any:
    """Decode plain data from JSON, with its types.

    Raises:
        ValueError: the JSON was not made by `encode`.
    """
    return _Decoder(resolve).make(data, 0)


UNEQUAL = "is not what it must be"
"""Difference of two values of which nothing more can be shown."""


def difference(came: Any, expected: Any) -> str:
    """How two values differ, in some hundred characters; empty if they are equal."""
    return "" if bool(came == expected) else shown_difference(came, expected)


def shown_difference(came: Any, expected: Any) -> str:
    """Show two values that differ; calls nothing of what is not plain data, and takes no items of iterators."""
    try:
        shown = _SHORTENED.repr(came), _SHORTENED.repr(expected)
    except ValueError:  # an integer of thousands of digits
        return UNEQUAL
    return UNEQUAL if shown[0] == shown[1] else f"is {shown[0]}, and must be {shown[1]}"


class _Shortened(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = 100

    def repr_instance(self, x: Any, level: int) -> str:
        is_plain = type(x) is Named or type(x).__module__ in ("builtins", "datetime", "decimal", "fractions", "numpy")
        return super().repr_instance(x, level) if is_plain else "an object"


_SHORTENED = _Shortened()


class _Encoder:
    """Encodes one value.

    Attributes:
        left: Number of parts that it may still have.
        other: Encodes parts that are not plain data, as in `encode`.
    """

    __slots__ = ("left", "other")

    def __init__(self, other: Other) -> None:
        self.left, self.other = MAX_VALUES, other

    def take(self, value: Any, depth: int) -> Any:
        """Encode a part at a depth of nesting."""
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
        if type(value).__module__ == "numpy" and hasattr(value, "dtype"):
            return self.take_numpy(value, depth)
        return ["reference", self.other(value)]

    def take_numpy(self, value: Any, depth: int) -> Any:
        """Encode an array of numbers, or a number of NumPy's as one of Python's."""
        if value.dtype.name not in _NUMPY_TYPES:
            return ["reference", self.other(value)]
        plain = self.take(value.tolist(), depth)
        return ["numpy", [value.dtype.name, [*value.shape], plain]] if value.shape else plain

    def take_all(self, values: Any, depth: int) -> list[Any]:
        """Encode each value."""
        return [self.take(value, depth) for value in values]

    def take_pairs(self, pairs: Any, depth: int) -> list[Any]:
        """Encode pairs of keys and values."""
        other, self.other = self.other, _no_other
        keys = [self.take(key, depth) for key, _ in pairs]
        self.other = other
        return [[key, self.take(value, depth)] for key, (_, value) in zip(keys, pairs, strict=True)]


_NUMBERS = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex128"
_NUMPY_TYPES = frozenset(_NUMBERS.split())

_Take = Callable[[_Encoder, Any, int], Any]


def _take_int(encoder: _Encoder, value: int, depth: int) -> Any:
    plain = int.__add__(value, 0)
    return plain if plain.bit_length() <= _MAX_DECIMAL_BITS else ["int", hex(plain)]


def _take_float(encoder: _Encoder, value: float, depth: int) -> Any:
    plain = float.__mul__(value, 1.0)
    return plain if math.isfinite(plain) else ["float", repr(plain)]


def _take_items(tag: str, base: Any) -> _Take:
    # With the base type's own iterator, since a subclass may override it.
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
"""Factories of a defaultdict that are encoded; functions of the program are not."""
_EMPTY: dict[Any, Any] = {}
_KEYS, _VALUES, _ITEMS = type(_EMPTY.keys()), type(_EMPTY.values()), type(_EMPTY.items())

_ENCODERS: tuple[tuple[type | tuple[type, ...], _Take], ...] = (
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
    ((bytes, memoryview), lambda encoder, value, depth: ["bytes", bytes(value).hex()]),
    (UserString, lambda encoder, value, depth: str.__str__(value.data)),
    (UserList, lambda encoder, value, depth: encoder.take(value.data, depth)),
    # ChainMap, UserDict, MappingProxyType: each is equal to a dict of the same content
    (Mapping, lambda encoder, value, depth: _take_dict(encoder, dict(value.items()), depth)),
    (type(...), lambda encoder, value, depth: ["ellipsis", None]),
    (Iterator, lambda encoder, value, depth: ["iterator", encoder.take_all(islice(value, MAX_ITEMS + 1), depth)]),
)
"""Encoders by base type; the first match is used."""


class _Decoder:
    """Decodes one value.

    Attributes:
        left: Number of parts that it may still have.
        resolve: Returns the value of a reference.
    """

    __slots__ = ("left", "resolve")

    def __init__(self, resolve: Resolve) -> None:
        self.left, self.resolve = MAX_VALUES, resolve

    def make(self, data: Any, depth: int) -> Any:
        """Decode a part at a depth of nesting."""
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
        """Decode each value of a list."""
        return [self.make(item, depth) for item in content]

    def all_by(self, resolve: Resolve, content: list[Any], depth: int) -> list[Any]:
        """Decode each value of a list, with another way to resolve references."""
        outer, self.resolve = self.resolve, resolve
        values = self.all(content, depth)
        self.resolve = outer
        return values

    def of_type(self, kind: type, content: list[Any], depth: int) -> list[Any]:
        """Decode each value of a list; all must be of a type."""
        items = self.all(content, depth)
        if not all(type(item) is kind for item in items):
            raise ValueError(f"not a plain value: not all are {kind.__name__}")
        return items

    def dict(self, content: list[Any], depth: int) -> dict[Any, Any]:
        """Decode a dictionary from pairs."""
        if not all(isinstance(pair, list) and len(pair) == 2 for pair in content):
            raise ValueError("not a plain value: not pairs")
        keys = _hashed(self.all_by(_no_reference, [key for key, _ in content], depth))
        return dict(zip(keys, [self.make(value, depth) for _, value in content], strict=True))

    def reference(self, content: Any, depth: int) -> Any:
        """Decode a reference."""
        return self.resolve(content)


def _no_reference(content: Any) -> Any:
    raise ValueError("not a plain value: a reference in a key or an array")


def _hashed(keys: list[Any]) -> list[Any]:
    """Return the keys of a hash table that can be built in time."""
    if _collide(keys):
        raise ValueError("not a plain value: keys that share a hash")
    return keys


def _collide(keys: Collection[Any]) -> bool:
    """Return whether so many keys share a hash that a table of them would take hours to build."""
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
    if any(map(hides_method, fields, items)):
        raise ValueError("not an item")
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
    return array(typecode, decoder.all_by(_no_reference, items, depth))


def _numpy(decoder: _Decoder, content: list[Any], depth: int) -> Any:
    name, shape, items = content
    if name not in _NUMPY_TYPES or not all(type(length) is int and 0 <= length <= MAX_VALUES for length in shape):
        raise ValueError("not a plain value: no array")
    (values,) = decoder.all_by(_no_reference, [items], depth)
    return import_module("numpy").array(values, dtype=name).reshape(shape)


def _iterator(decoder: _Decoder, content: list[Any], depth: int) -> Iterator[Any]:
    items = decoder.all(content, depth)

    def iterate() -> Iterator[Any]:
        yield from items[:MAX_ITEMS]
        if len(items) > MAX_ITEMS:
            raise ValueError(f"the test wants more than {MAX_ITEMS} items of an iterator")

    return iterate()


def _keys(decoder: _Decoder, content: list[Any], depth: int) -> KeysView[Any]:
    return dict.fromkeys(_hashed(decoder.all_by(Reference, content, depth))).keys()


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
    "set": (list, lambda decoder, content, depth: set(_hashed(decoder.all(content, depth)))),
    "frozenset": (list, lambda decoder, content, depth: frozenset(_hashed(decoder.all(content, depth)))),
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
    "keys": (list, _keys),
    "values": (list, lambda decoder, content, depth: dict(enumerate(decoder.all(content, depth))).values()),
    "items": (list, lambda decoder, content, depth: decoder.dict(content, depth).items()),
    "array": (list, _array),
    "numpy": (list, _numpy),
    "ellipsis": (type(None), lambda decoder, content, depth: ...),
    "iterator": (list, _iterator),
    "reference": (object, _Decoder.reference),
}
"""Type of the content and decoder, by tag."""
