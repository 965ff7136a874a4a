from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from grpo_core.identity import source_of


def within(tolerance: Any) -> Callable[..., float]:
    def close(answer, row):
        return float(abs(answer - row) <= tolerance)

    return close


def with_default(tolerance: float) -> Callable[..., float]:
    def close(answer, row, tolerance=tolerance):
        return float(abs(answer - row) <= tolerance)

    return close


def plain(answer):
    return 1.0


def other(answer):
    return 0.0


@dataclass
class Composer:
    invalid: float
    inner: Callable[..., float] = plain

    def compose(self, parts):
        return self.invalid


class Unknown:
    pass


def made(source: str) -> Callable[..., float]:
    names: dict[str, Any] = {}
    exec(source, names)
    return names["f"]


DIFFERENT = [
    (plain, other),
    (within(0.1), within(0.2)),
    (within(plain), within(other)),
    (with_default(0.1), with_default(0.2)),
    (partial(plain, answer=1), partial(plain, answer=2)),
    (partial(plain), partial(other)),
    (Composer(0.0), Composer(0.1)),
    (Composer(0.0), Composer(0.0, other)),
    (Composer(0.0).compose, Composer(0.1).compose),
    (made("def f(a): return 1"), made("def f(a): return 2")),
    (made("def f(a): return a.x"), made("def f(a): return a.y")),
    (made("def f(a): return a in {1, 2}"), made("def f(a): return a in {1, 3}")),
    (made("def f(a): return (lambda b: b + 1)(a)"), made("def f(a): return (lambda b: b + 2)(a)")),
    ({"a": 1}, {"a": 2}),
    (Unknown, Composer),
    (None, 0),
]


@pytest.mark.parametrize(("one", "two"), DIFFERENT)
def test_what_does_something_else_reads_otherwise(one: Any, two: Any) -> None:
    assert source_of(one) != source_of(two)


@pytest.mark.parametrize("given", [one for one, _ in DIFFERENT] + [Unknown(), {"b", "a", "c"}])
def test_no_address_gets_into_the_text(given: Any) -> None:
    assert " at 0x" not in source_of(given)


def test_two_of_one_kind_read_alike() -> None:
    assert source_of(within(0.1)) == source_of(within(0.1))
    assert source_of(Unknown()) == source_of(Unknown())


def test_a_function_that_closes_over_itself_ends() -> None:
    def recursive(answer):
        return recursive(answer)

    assert source_of(recursive).count("def recursive") == 8


def test_a_name_that_is_not_bound_yet_is_nothing() -> None:
    def early(answer):
        return late(answer)

    text = source_of(early)

    def late(answer):
        return 1.0

    assert "def early" in text and source_of(early) != text
