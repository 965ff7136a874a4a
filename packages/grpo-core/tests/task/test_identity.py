from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import pytest

from grpo_core.task.identity import meaning_of, normalised


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


class Near:
    def __init__(self, tolerance: float) -> None:
        self.tolerance, self._calls = tolerance, 0

    def __call__(self, answer):
        self._calls += 1
        return float(answer <= self.tolerance)


def with_named_default(tolerance: float) -> Callable[..., float]:
    def close(answer, row, *, tolerance=tolerance):
        return float(abs(answer - row) <= tolerance)

    return close


def made(source: str) -> Callable[..., float]:
    names: dict[str, Any] = {}
    exec(source, names)
    return names["f"]


DIFFERENT = [
    (plain, other),
    (within(0.1), within(0.2)),
    (within(plain), within(other)),
    (with_default(0.1), with_default(0.2)),
    (with_named_default(0.1), with_named_default(0.2)),
    (lru_cache(plain), lru_cache(other)),
    (Near(0.1), Near(0.2)),
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
    assert meaning_of(one) != meaning_of(two)


@pytest.mark.parametrize("given", [one for one, _ in DIFFERENT] + [Unknown(), {"b", "a", "c"}])
def test_no_address_gets_into_the_text(given: Any) -> None:
    assert " at 0x" not in meaning_of(given)


def test_two_of_one_kind_read_alike() -> None:
    assert meaning_of(within(0.1)) == meaning_of(within(0.1))
    assert meaning_of(Unknown()) == meaning_of(Unknown())
    asked, new = Near(0.1), Near(0.1)
    asked(1.0)
    assert meaning_of(asked) == meaning_of(new)


def tree(source: str) -> str:
    node = ast.parse(source).body[0]
    assert isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    return normalised(node)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("def f(a):\n    'Doc.'\n    return a", "def g(a):  # comment\n\n    return (a)"),
        ("def f(a):\n    b = a\n    return b", "def f(a: int) -> int:\n    c: int = a\n    return c"),
        ("def f(a):\n    return [b for b in a]", "def f(a):\n    return [c for c in a]"),
        ("def f(a):\n    raise Invalid(f'no {a}')", "def f(a):\n    raise Invalid('none')"),
        ("def f(a):\n    assert a, 'none'", "def f(a):\n    assert a"),
        (
            "def f(a):\n    def g(): return a\n    return g",
            "def f(a):\n    def h():\n        'Doc.'\n        return a\n    return h",
        ),
        (
            "def f(a):\n    try: a()\n    except E as b: return b",
            "def f(a):\n    try: a()\n    except E as c: return c",
        ),
        (
            "def f(a):\n    match a:\n        case [b, *c]: return b",
            "def f(a):\n    match a:\n        case [x, *y]: return x",
        ),
        ("def f(a):\n    return f(a)", "def g(a):\n    return g(a)"),
    ],
)
def test_rewording_changes_nothing(one: str, two: str) -> None:
    assert tree(one) == tree(two)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("def f(a): return a", "def f(b): return b"),  # callers pass arguments by name
        ("def f(a): return a, 'x'", "def f(a): return a, 'y'"),
        ("def f(a):\n    b = 1\n    return a.b", "def f(a):\n    c = 1\n    return a.c"),
        ("def f(a):\n    b = 'b'\n    return b", "def f(a):\n    c = 'c'\n    return c"),
        ("def f(a):\n    b = c = a\n    return b - 2 * c", "def f(a):\n    b = c = a\n    return c - 2 * b"),
        ("def f(a):\n    global b\n    b = a", "def f(a):\n    global c\n    c = a"),
        ("def f(a):\n    b = a\n    return local(b)", "def f(a):\n    b = a\n    return b(b)"),
        ("def f(a):\n    raise Invalid('x')", "def f(a):\n    raise Missing('x')"),
        ("def f(a): return helper(a)", "def f(a): return other(a)"),
        ("def f(a): return 1", "def f(a): return 1.0"),
        ("async def f(a): return a", "def f(a): return a"),
        ("def f(a, b=1): return a", "def f(a, b=2): return a"),
    ],
)
def test_what_computes_something_else_differs(one: str, two: str) -> None:
    assert tree(one) != tree(two)


PAIR = (lambda answer: answer + 1, lambda answer: answer + 2)


def test_lambdas_of_one_line_are_told_apart() -> None:
    one, two = map(meaning_of, PAIR)
    assert one != two and "value=1" in one and "value=2" in two


def test_a_lambda_within_a_call_has_a_tree() -> None:
    call = {
        "key": lambda answer: -answer,
    }
    assert meaning_of(call["key"]).startswith("Lambda(")


def test_a_function_that_closes_over_itself_ends() -> None:
    def recursive(answer):
        return recursive(answer)

    assert meaning_of(recursive).count("FunctionDef") == 8


def test_a_name_that_is_not_bound_yet_is_nothing() -> None:
    def early(answer):
        return late(answer)

    text = meaning_of(early)

    def late(answer):
        return 1.0

    assert "late" in text and meaning_of(early) != text


USED = """
LIMIT = {limit}
WORDS = {{"a"}}
WORDS |= {words}

class Answer:
    def value(self): return {value}

def inner(a): return a <= LIMIT

def helper(a):
    "Doc."
    return inner(a) and a in WORDS

def unused(a): return {unused}

try:
    from fast import exact
except ImportError:
    def exact(a): return {exact}

def check(a: Answer): return helper(a) and exact(a)
"""


@pytest.fixture
def meaning_in_file(tmp_path: Path) -> Callable[..., str]:
    def made(**values: object) -> str:
        defaults = {"limit": 1, "words": "{'b'}", "value": 1, "unused": 1, "exact": 1}
        file = tmp_path / f"task{len(list(tmp_path.iterdir()))}.py"
        file.write_text(USED.format(**{**defaults, **values}))
        namespace: dict[str, Any] = {}
        exec(compile(file.read_text(), file, "exec"), namespace)
        return meaning_of(namespace["check"])

    return made


@pytest.mark.parametrize("changed", ["limit", "words", "value", "exact"])
def test_what_a_function_uses_of_its_own_file_is_part_of_it(meaning_in_file: Callable[..., str], changed: str) -> None:
    assert meaning_in_file() != meaning_in_file(**{changed: "{'c'}" if changed == "words" else 2})


def test_what_a_function_does_not_use_is_no_part_of_it(meaning_in_file: Callable[..., str]) -> None:
    assert meaning_in_file() == meaning_in_file(unused=2)


def test_helpers_that_change_their_names_are_others(tmp_path: Path) -> None:
    source = "def {}(a): return 1\ndef {}(a): return 2\ndef check(answer): return one(answer) - two(answer)\n"
    meanings = set()
    for index, names in enumerate((("one", "two"), ("two", "one"))):
        file = tmp_path / f"task{index}.py"
        file.write_text(source.format(*names))
        namespace: dict[str, Any] = {}
        exec(compile(file.read_text(), file, "exec"), namespace)
        meanings.add(meaning_of(namespace["check"]))
    assert len(meanings) == 2
