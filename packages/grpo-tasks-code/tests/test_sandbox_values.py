"""Plain data between the processes of a test."""

from __future__ import annotations

import contextlib
import datetime
import enum
import json
import math
from array import array
from collections import ChainMap, Counter, OrderedDict, UserList, UserString, defaultdict, deque, namedtuple
from decimal import Decimal
from itertools import count
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_tasks_code.sandbox.inside.values import MAX_DEPTH, MAX_ITEMS, NotPlainError, decode, encode

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)  # which is equal to nothing
    | st.complex_numbers(allow_nan=False)
    | st.text(st.characters(exclude_categories=()))  # lone surrogates too
    | st.binary()
    | st.fractions()
    | st.dates()
    | st.datetimes(
        timezones=st.none() | st.just(datetime.UTC) | st.just(datetime.timezone(datetime.timedelta(hours=-5)))
    )
    | st.times()
    | st.timedeltas()
)
hashable = st.recursive(scalars, lambda inner: st.tuples(inner, inner) | st.frozensets(inner), max_leaves=5)
plain = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner)
        | st.sets(hashable)
        | st.dictionaries(hashable, inner)
        | st.builds(deque, st.lists(inner))
    ),
    max_leaves=10,
)


def there_and_back(value: object) -> Any:
    return decode(json.loads(json.dumps(encode(value))))


@given(plain)
def test_plain_data_arrives_as_it_was(value: object) -> None:
    arrived = there_and_back(value)
    assert type(arrived) is type(value)
    assert arrived == value


@pytest.mark.parametrize(
    "value",
    [
        -0.0,
        math.inf,
        range(3, 9, 2),
        bytearray(b"x"),
        ...,
        Decimal("1.50"),
        {1: 2}.keys(),
        1 << 2047,
    ],
)
def test_values_of_odd_forms(value: object) -> None:
    assert repr(there_and_back(value)) == repr(value)


def test_not_a_number() -> None:
    arrived = there_and_back([math.nan, complex(math.nan, 1)])
    assert math.isnan(arrived[0])
    assert math.isnan(arrived[1].real)


def test_integers_longer_than_python_reads() -> None:
    for value in (10**5000, -(10**5000)):
        assert there_and_back(value) == value


Point = namedtuple("Point", "x y")


class Number(enum.IntEnum):
    TWO = 2


class Lie(int):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__

    def __add__(self, other: object) -> int:
        return 7


class Text(str):
    def __str__(self) -> str:
        return "lie"

    def __iter__(self) -> Any:
        return iter("lie")


class Items(list[int]):
    def __iter__(self) -> Any:
        return iter([7])

    def __len__(self) -> int:
        return 0


@pytest.mark.parametrize(
    ("value", "arrives"),
    [
        (Point(1, 2), (1, 2)),
        (Number.TWO, 2),
        (Lie(3), 3),
        (Text("truth"), "truth"),
        (Items([1, 2]), [1, 2]),
        (Counter("aab"), {"a": 2, "b": 1}),
        (OrderedDict(a=1), {"a": 1}),
        (defaultdict(list, a=[1]), {"a": [1]}),
        (ChainMap({"a": 1}, {"b": 2}), {"a": 1, "b": 2}),
        (MappingProxyType({"a": 1}), {"a": 1}),
        (UserList([1]), [1]),
        (UserString("a"), "a"),
        (array("i", [1, 2]), array("i", [1, 2])),
        (memoryview(b"a"), b"a"),
    ],
)
def test_an_instance_of_a_subclass_arrives_as_its_base(value: object, arrives: object) -> None:
    arrived = there_and_back(value)
    assert type(arrived) is type(arrives)
    assert arrived == arrives


def test_the_values_of_a_dictionary() -> None:
    arrived = there_and_back({"a": 1, "b": [2]}.values())
    assert type(arrived) is type({}.values())
    assert list(arrived) == [1, [2]]


def test_an_iterator_arrives_as_one() -> None:
    assert list(there_and_back(iter([1, 2]))) == [1, 2]
    assert next(there_and_back(count(5))) == 5
    with pytest.raises(ValueError, match="more than"):
        list(there_and_back(count()))
    assert len(list(there_and_back(iter(range(MAX_ITEMS))))) == MAX_ITEMS


@pytest.mark.parametrize("value", [object(), print, int, lambda: 0, json, Exception("x"), [object()], {1: object()}])
def test_what_is_not_plain(value: object) -> None:
    with pytest.raises(NotPlainError):
        encode(value)


def test_cycles_and_depth() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(NotPlainError, match="deep"):
        encode(loop)
    nested: list[Any] = []
    for _ in range(MAX_DEPTH - 1):
        nested = [nested]
    assert there_and_back(nested) == nested


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=8,
)
tags = st.sampled_from(["int", "float", "dict", "set", "complex", "range", "fraction", "date", "bytes", "items", "x"])


@pytest.mark.parametrize(
    "data",
    [
        ["fraction", ["1e999999999"]],  # would be computed for ever
        ["fraction", [1, 0]],
        ["set", [["list", []]]],
        ["dict", [[["list", []], 1]]],
        ["range", ["1"]],
        ["float", "1.5"],
        ["timedelta", [1e300]],
        ["bytes", "zz"],
        ["list", {}],
        ["object", 1],
        ["list"],
        {},
    ],
)
def test_forged_values(data: Any) -> None:
    with pytest.raises(ValueError, match=r"not a plain|hex"):
        decode(data)


@given(json_values | st.tuples(tags, json_values).map(list))
def test_whatever_arrives_is_data_or_a_value_error(data: Any) -> None:
    with contextlib.suppress(ValueError):
        decode(data)


def test_what_is_not_plain_travels_as_a_reference() -> None:
    arrived = decode(encode([1, {"a": object()}, iter([print])], other=lambda value: ["at", type(value).__name__]))
    assert arrived[1]["a"].content == ["at", "object"]
    assert [each.content[1] for each in arrived[2]] == ["builtin_function_or_method"]
    with pytest.raises(NotPlainError):
        encode({object(): 1}, other=lambda value: 0)
