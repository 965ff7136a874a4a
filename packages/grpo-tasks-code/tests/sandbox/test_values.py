"""Plain data between the processes of a test."""

import contextlib
import datetime
import json
import math
import os
import resource
import time
from array import array
from collections import ChainMap, Counter, OrderedDict, UserList, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterator
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from http import HTTPStatus
from itertools import count
from types import MappingProxyType
from typing import Any

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_tasks_code.sandbox.inside import values, wire
from grpo_tasks_code.sandbox.inside.values import MAX_DEPTH, MAX_ITEMS, NotPlainError, decode, encode

zones = st.sampled_from([None, datetime.UTC, datetime.timezone(datetime.timedelta(hours=-5))])
scalars = st.one_of(
    *map(st.from_type, (type(None), bool, int, bytes, Fraction, datetime.date, datetime.time, datetime.timedelta)),
    *(st.floats(allow_nan=False), st.complex_numbers(allow_nan=False), st.datetimes(timezones=zones)),
    st.text(st.characters(exclude_categories=())),  # lone surrogates too; a NaN is equal to nothing
)
hashable = st.recursive(scalars, lambda inner: st.tuples(inner, inner) | st.frozensets(inner), max_leaves=5)
plain = st.recursive(
    scalars,
    lambda inner: st.one_of(
        *(st.lists(inner), st.tuples(inner), st.sets(hashable), st.dictionaries(hashable, inner)),
        st.builds(deque, st.lists(inner)),
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


@pytest.mark.parametrize("value", [
    *(-0.0, math.inf, math.nan, complex(math.nan, 1), range(3, 9, 2), bytearray(b"x"), ..., Decimal("1.50")),
    *({1: 2}.keys(), {"a": [2]}.values(), 1 << 2047, Counter("aab"), OrderedDict(b=1, a=2), {"a": Counter({1: 0})}),
    *(defaultdict(list, a=[1]), defaultdict(None, a=1)),
])  # fmt: skip
def test_values_of_odd_forms(value: object) -> None:
    assert repr(there_and_back(value)) == repr(value)


@pytest.mark.parametrize(("value", "arrives"), [
    (HTTPStatus.OK, 200),
    (defaultdict(lambda: 1, a=[1]), defaultdict(None, a=[1])),
    (ChainMap({"a": 1}, {"b": 2}), {"a": 1, "b": 2}),
    (MappingProxyType({"a": 1}), {"a": 1}),
    (UserList([1]), [1]),
    (array("i", [1, 2]), array("i", [1, 2])),
    (memoryview(b"a"), b"a"),
    ([10**5000, -(10**5000)],) * 2,  # longer than Python reads
])  # fmt: skip
def test_an_instance_of_another_class_arrives_as_plain_data(value: object, arrives: object) -> None:
    arrived = there_and_back(value)
    assert type(arrived) is type(arrives)
    assert arrived == arrives


Point = namedtuple("Point", "x y")


def test_a_named_tuple_arrives_with_its_names() -> None:
    arrived = there_and_back([Point(1, 2), Point(3, [4])])
    assert arrived == [(1, 2), (3, [4])] == there_and_back(arrived)
    assert (arrived[0].x, arrived[1].y, arrived[0]._fields) == (1, [4], ("x", "y"))
    assert (arrived[0]._asdict(), arrived[0]._replace(y=5)) == ({"x": 1, "y": 2}, (1, 5))
    assert there_and_back(namedtuple("Odd", "count index")(7, 8)).count == 7
    for fields in (["x"], ["x", "_y"], ["x", "y z"], ["x", "__class__"]):
        with pytest.raises(ValueError, match="not a plain value"):
            decode(["named", [fields, [1, 2]]])


def test_an_iterator_arrives_as_one() -> None:
    assert list(there_and_back(iter([1, 2]))) == [1, 2]
    assert next(there_and_back(count(5))) == 5
    with pytest.raises(ValueError, match="more than"):
        list(there_and_back(count()))
    assert len(list(there_and_back(iter(range(MAX_ITEMS))))) == MAX_ITEMS


LOOP: list[Any] = []
LOOP.append(LOOP)


@pytest.mark.parametrize("value", [object(), print, int, json, Exception("x"), [object()], {1: object()}, LOOP])
def test_what_is_not_plain(value: object) -> None:
    with pytest.raises(NotPlainError):
        encode(value)


def nested(depth: int, core: Any, wrap: Callable[[Any], Any]) -> Any:
    for _ in range(depth):
        core = wrap(core)
    return core


@pytest.mark.parametrize("wrap", [lambda value: [value], lambda value: {1: value}, lambda value: (value, 1)])
@pytest.mark.parametrize("core", [1, "x", [], ()])
def test_both_ends_agree_on_depth(core: Any, wrap: Callable[[Any], Any]) -> None:
    deepest = nested(MAX_DEPTH, core, wrap)
    assert there_and_back(deepest) == deepest
    assert wire.parse(wire.frame([1, "value", encode(deepest), [encode(deepest)]])[wire.LENGTH.size :])
    with pytest.raises(NotPlainError, match="deep"):
        encode(wrap(deepest))
    with pytest.raises(ValueError, match="deep"):
        decode(["list", [encode(deepest)]])


@pytest.mark.parametrize(
    "part", [datetime.timedelta(1), array("i", [1, 2]), {1: 2}.items(), 1j, Fraction(1, 2), range(3)]
)
def test_both_ends_agree_on_size(part: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "MAX_VALUES", 100)
    largest: list[Any] = []
    with contextlib.suppress(NotPlainError):
        while encode([*largest, part]):
            largest.append(part)
    assert 10 < len(largest) < 100
    assert len(there_and_back(largest)) == len(largest)


COLLIDING = {n * ((1 << 61) - 1) for n in range(200)}
"""Integers that differ by a multiple of 2^61 - 1 have one hash: each is compared with all others in a set."""


@pytest.mark.parametrize(("value", "forged"), [
    (COLLIDING, ["set", [encode(each) for each in COLLIDING]]),
    (Fraction(1 << values.MAX_FRACTION_BITS, 3), ["fraction", [["int", "f" * 9999], 2]]),
])  # fmt: skip
def test_what_would_take_the_reader_hours(value: object, forged: Any) -> None:
    with pytest.raises(NotPlainError, match=r"hash|bits"):
        encode(value)
    with pytest.raises(ValueError, match=r"hash|long"):
        decode(forged)


HUGE = ["range", [0, 10**15, 1]]


@pytest.fixture
def little_memory() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (psutil.Process().memory_info().vms + (1 << 30), hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("data", [
    # What the reader would have to make a longer thing of than what it was sent.
    *(["array", ["q", HUGE]], ["array", ["q", ["iterator", [HUGE]]]], ["items", [HUGE]], ["dict", [HUGE]]),
    *(["keys", HUGE], ["set", HUGE], ["decimal", ["tuple", [0, HUGE, 0]]], ["fraction", HUGE], ["deque", HUGE]),
    *(["bytes", 10**15], ["bytearray", 10**15], ["named", ["x", [1]]], ["array", [1, []]]),
    ["fraction", ["1e999999999"]],  # would be computed for ever
    ["fraction", [1, 0]],
    ["set", [["list", []]]],
    ["dict", [1]],
    ["dict", [[["reference", []], None]]],
    ["dict", [[["tuple", [["reference", []]]], None]]],
    *(["float", "1.5"], ["timedelta", [1e300]], ["bytes", "zz"], ["list", {}], ["object", 1], ["list"], {}),
])  # fmt: skip
def test_forged_values_are_refused_and_not_built(data: Any) -> None:
    with pytest.raises(ValueError, match=r"not a plain|hex"):
        decode(data)


TAGS = [*values._DECODERS, "object", "x"]
ODD = [10**15, -1, 2**63, 10**99, "1e999999999", "0x" + "f" * 99, "q", "u", "nan", "sNaN", "2020-01-01", "00" * 99]
forged = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(ODD),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.text(max_size=3), inner, max_size=2),
        st.tuples(st.sampled_from(TAGS), st.lists(inner, max_size=4) | inner).map(list),
        st.tuples(st.sampled_from(TAGS), st.lists(st.lists(inner, min_size=2, max_size=2), max_size=4)).map(list),
    ),
    max_leaves=10,
)
damage = st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), max_size=3)


def damaged(message: Any, changes: list[tuple[int, int]]) -> bytes:
    data = bytearray(wire.frame(message)[wire.LENGTH.size :])
    for at, byte in changes:
        data[at % len(data)] = byte
    return bytes(data)


frames = st.binary(max_size=99) | st.builds(damaged, forged | plain.map(encode), damage)

FUZZED = int(os.environ.get("SANDBOX_FUZZ_EXAMPLES", "200"))
"""100,000 take minutes: by hand, as before a release."""


@settings(max_examples=FUZZED, deadline=None)
@given(frames)
def test_whatever_arrives_is_data_or_a_value_error(data: bytes) -> None:
    begin, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        arrived = decode(wire.parse(data))
        bool(arrived == 0)
    except (ValueError, InvalidOperation):  # comparing raises the latter for what is not even "not a number"
        return
    finally:
        assert time.process_time() - begin < 5
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10
    # What was made is a value like any other: it can be sent on.
    again = decode(encode(arrived, other=lambda reference: reference.content))
    assert type(again) is type(arrived) or isinstance(arrived, Iterator)


def test_what_is_not_plain_travels_as_a_reference() -> None:
    arrived = decode(encode([1, {"a": object()}, iter([print])], other=lambda value: ["at", type(value).__name__]))
    assert arrived[1]["a"].content == ["at", "object"]
    assert [each.content[1] for each in arrived[2]] == ["builtin_function_or_method"]
    with pytest.raises(NotPlainError):
        encode({object(): 1}, other=lambda value: 0)
