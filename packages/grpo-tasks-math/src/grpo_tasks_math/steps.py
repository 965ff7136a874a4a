"""The arithmetic steps in a text, and whether they are true."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction

from grpo_tasks_math.verify.exact import decimal_places, evaluate
from grpo_tasks_math.verify.normalise import clean

MAX_STEPS = 16
"""Distinct steps that are read; GSM8K's longest solution has 14. Further steps do not count."""
MAX_CHARS = 16_384
"""Characters that are read."""
MAX_LINE = 1000
"""Characters of a line that are read."""

_CALCULATOR = re.compile(r"<<([^<>\n]{0,200})>>")
_TIMES = re.compile(r"(?<=[0-9)%])\s?[xX]\s?(?=[0-9($])")
_CURRENCY = re.compile(r"[$€£¥₹]")
_SPAN = re.compile(r"(?:[0-9.,%+\-*/^(){}\[\]!\s=]|\\(?:frac|sqrt|approx)(?![A-Za-z]))+")
_SENTENCE_END = re.compile(r"[,;.](?=\s|$)")
_EQUALS = re.compile(r"(=|\\approx)")
_OPERATION = re.compile(r"[0-9)%}!]\s*(?:\*\*|[-+*/^])\s*[-+(\\0-9.]|\\(?:frac|sqrt)|[0-9)]\(|[0-9)]!")


def steps(text: str) -> dict[str, bool]:
    """Return the first `MAX_STEPS` distinct steps of a text, those in `<<…>>` first -> whether they are true.

    A step is `left = right` (or ≈) where both sides are numeric expressions and one has an operation; a chain
    `a = b = c` gives two. Currency signs, thousands separators, `%`, × and LaTeX are read. Equations with letters are
    not steps, nor are those whose beginning or end belongs to words. One is true where both sides have the same value,
    or the right one is the left one rounded to its decimals.
    """
    distinct: dict[str, bool] = {}
    for clause in _clauses(text):
        for step, is_true in _steps_of(clause):
            distinct.setdefault(step, is_true)
            if len(distinct) == MAX_STEPS:
                return distinct
    return distinct


def _clauses(text: str) -> Iterator[str]:
    text = text[:MAX_CHARS]
    yield from _CALCULATOR.findall(text)
    for line in _CALCULATOR.sub("", text).splitlines():
        if "=" in line or "≈" in line or "\\approx" in line:
            yield from _SENTENCE_END.split(_TIMES.sub("*", _CURRENCY.sub("", clean(line[:MAX_LINE]))))


def _steps_of(clause: str) -> Iterator[tuple[str, bool]]:
    for span in _SPAN.finditer(clause):
        pieces = _EQUALS.split(span[0])
        if len(pieces) < 3:
            continue
        sides = [_balanced(side) for side in pieces[::2]]
        if _belongs_to_words(clause[: span.start()], span[0]):
            sides[0] = ""
        # `= 24x` is no number, while in `= 24 apples` and `= 24 (as before)` text follows one.
        if clause[span.end() : span.end() + 1].isalpha() and not (span[0][-1].isspace() or span[0][-1] in "(["):
            sides[-1] = ""
        for left, sign, right in zip(sides, pieces[1::2], sides[1:], strict=False):
            step = _step(left, right, is_approximate=sign != "=")
            if step is not None:
                yield step


def _balanced(side: str) -> str:
    """Strip a bracket that opens or closes around the whole equation or the words after it."""
    side = side.strip().rstrip("([ ")
    if side.startswith("(") and side.count("(") > side.count(")"):
        side = side[1:]
    elif side.endswith(")") and side.count(")") > side.count("("):
        side = side[:-1]
    return side.strip()


def _belongs_to_words(before: str, span: str) -> bool:
    """Whether a span's first expression continues words: `x2 + …`, `60 students x 2/3 = …`, `apples - 3 = …`."""
    start = span.lstrip()
    if start == span and (before[-1:].isalnum() or before[-1:] == ":"):
        return True
    if (before + " ").endswith((" x ", " X ", " of ")):
        return True
    return start[:1] in "+*/^)]}!%" or (start[:1] == "-" and (start[1:2] == " " and bool(before.strip())))


def _step(left: str, right: str, *, is_approximate: bool) -> tuple[str, bool] | None:
    if not (_OPERATION.search(left) or _OPERATION.search(right)):
        return None
    a, b = evaluate(left), evaluate(right)
    if a is None or b is None:
        return None
    is_true = a == b or (right.endswith("%") and a == 100 * b) or _is_rounded(a, b, right, is_approximate)
    return f"{left}={right}".replace(" ", ""), is_true


def _is_rounded(value: Fraction, rounded: Fraction, text: str, is_approximate: bool) -> bool:
    places = decimal_places(text)
    if places is None or (places == 0 and not is_approximate):
        return False
    return abs(value - rounded) <= Fraction(1, 2 * 10**places)
