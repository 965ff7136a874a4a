from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import pytest

from grpo_sdk.task.identity import meaning_of


def within(tolerance: Any) -> Callable[..., float]:
    def close(answer, row):
        return float(abs(answer - row) <= tolerance)

    return close


def plain(answer):
    return 1.0


def other(answer):
    return 0.0


@dataclass
class Composer:
    invalid: float

    def compose(self, parts):
        return self.invalid


class Unknown:
    pass


class Near:
    def __init__(self, tolerance: float) -> None:
        self.tolerance, self._calls = tolerance, 0

    def __call__(self, answer):
        self._calls += 1
        return float(answer <= self.tolerance)


def made(source: str) -> Callable[..., float]:
    names: dict[str, Any] = {}
    exec(source, names)
    return names["f"]


DIFFERENT = [
    (plain, other),
    (within(0.1), within(0.2)),
    (lru_cache(plain), lru_cache(other)),
    (Near(0.1), Near(0.2)),
    (partial(plain, answer=1), partial(plain, answer=2)),
    (Composer(0.0).compose, Composer(0.1).compose),
    (made("def f(a): return a.x"), made("def f(a): return a.y")),
    (made("def f(a): return a in {1, 2}"), made("def f(a): return a in {1, 3}")),
    (made("def f(a): return (lambda b: b + 1)(a)"), made("def f(a): return (lambda b: b + 2)(a)")),
    (lambda answer: answer + 1, lambda answer: answer + 2),  # of one line
    (Unknown, Composer),
]


@pytest.mark.parametrize(("one", "two"), DIFFERENT)
def test_what_does_something_else_reads_otherwise(one: Any, two: Any) -> None:
    assert meaning_of(one) != meaning_of(two)
    assert " at 0x" not in meaning_of(one)


def test_two_of_one_kind_read_alike_without_their_address() -> None:
    assert meaning_of(within(0.1)) == meaning_of(within(0.1))
    assert meaning_of(Unknown()) == meaning_of(Unknown())
    assert meaning_of({"b", "a", "c"}) == meaning_of({"c", "b", "a"})
    asked, new = Near(0.1), Near(0.1)
    asked(1.0)
    assert meaning_of(asked) == meaning_of(new)


def test_a_function_that_closes_over_itself_ends() -> None:
    def recursive(answer):
        return recursive(answer)

    assert meaning_of(recursive).count("recursive(") <= 9


FILE = """
LIMIT = 1
def helper(a): return a <= LIMIT
def check(a): return helper(a)
"""


def meaning(tmp_path: Path, source: str) -> str:
    file = tmp_path / f"task{len(list(tmp_path.iterdir()))}.py"
    file.write_text(source)
    names: dict[str, Any] = {}
    exec(compile(source, file, "exec"), names)
    return meaning_of(names["check"])


@pytest.mark.parametrize(("one", "two", "is_same"), [
    ("def check(a): return helper(a)", "def check(a):  # a comment\n    'Doc.'\n\n    return (helper(a))", True),
    ("LIMIT = 1", "'Doc of the file.'\nLIMIT = 1  # inclusive", True),
    ("LIMIT = 1", "LIMIT = 2", False),
    ("a <= LIMIT", "a < LIMIT", False),
    ("check(a): return helper(a)", "check(a): return not helper(a)", False),
])  # fmt: skip
def test_the_file_of_a_function_is_part_of_it_but_not_its_comments_and_layout(tmp_path, one, two, is_same):
    assert (meaning(tmp_path, FILE) == meaning(tmp_path, FILE.replace(one, two))) is is_same
