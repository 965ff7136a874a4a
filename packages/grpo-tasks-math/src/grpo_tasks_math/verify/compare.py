"""Three-valued comparison of two read answers: equal, different, or not decided without the symbolic engine."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from grpo_tasks_math.verify import algebra
from grpo_tasks_math.verify.exact import MAX_DIGITS
from grpo_tasks_math.verify.reader import LONGEST_PRODUCT, is_open
from grpo_tasks_math.verify.values import Choice, Digits, Equation, Formula, Items, NaN, Number, Relation, Value, Words


@dataclass(frozen=True, slots=True)
class Equality:
    """Rules of equality.

    Attributes:
        formulas: (gold, answer) in cleaned LaTeX -> whether they are equal; None when not decided, as by default;
            `EXACT` decides short ones; see `algebra`.
        rel_tol: Largest difference between two numbers, relative to the gold; 0 for exact equality.
    """

    formulas: Callable[[str, str], bool | None] = lambda gold, answer: None
    rel_tol: Fraction = Fraction(0)


EXACT = Equality(algebra.are_equal)


_INNER_SPACE = re.compile(r"(?<!\w) | (?!\w)")


def spelling(value: Value) -> str:
    """Return the text without the spaces that carry no meaning; `1 2` keeps its own."""
    return _INNER_SPACE.sub("", value.text)


def compare(gold: Value, answer: Value, equality: Equality = EXACT) -> bool | None:
    """Return whether `answer` says what `gold` says; None only where `equality` decides nothing.

    * Numbers are compared exactly unless there is a `rel_tol`: an approximation is another number. Only a fraction that
      no decimal writes in full (1/12) equals its first `PRINTED_DIGITS` digits, which is what a computer prints for it.
    * p% equals p and p/100 on the other side, but a gold below 1 not its own digits with a percent sign.
    * Units count only when both are known and differ; words that follow a number otherwise say nothing.
    * Several values are never one value; a set has no order, a tuple and an interval have.
    * `x = 5` equals `5`; `x = 5` and `y = 5` differ; `x = 2, y = 1` is (2, 1) and not (1, 2).
    * An equation that states no value equals an equivalent equation, and no value.
    * `(C) 13` equals 13, `(C)` and `(C) 13`.
    * A gold like 12:30, a time of day and no ratio in lowest terms, is that time: 4:10 differs.
    * `nan` equals nothing.
    """
    if isinstance(gold, NaN) or isinstance(answer, NaN):
        return False
    if spelling(gold) == spelling(answer):
        return True
    match gold, answer:
        case Formula(), Formula() | Number() if _is_time(gold.text):
            return False
        case Number(), Number():
            return _numbers(gold, answer, equality)
        # Against a number, `5m` is five metres; a gold `5m` may be a formula, so 5 is not enough for it.
        case Number(), Formula(quantity=Number() as quantity):
            return _numbers(gold, quantity, equality)
        case Choice(), _:
            return _choices(gold, answer, equality)
        case _, Choice():
            return answer.value is not None and compare(gold, answer.value, equality)
        case (Relation(), _) | (_, Relation()):
            return is_open(gold) and is_open(answer) and equality.formulas(gold.text, answer.text)
        case Equation(), _:
            return _named(gold, answer, equality)
        case _, Equation():
            return compare(gold, answer.value, equality)
        case Digits(), _:
            return _digits(gold, answer)
        case _, Digits():
            return _digits(answer, gold)
        case Words(), Words():
            return _words(gold, answer, equality)
        case Items(), Items():
            return _items(gold, answer, equality)
    if isinstance(gold, Formula) or isinstance(answer, Formula):
        return _formula(gold, answer, equality)
    return False


_TIME = re.compile(r"([01]?[0-9]|2[0-3])\s?:\s?([0-5][0-9])")


def _is_time(text: str) -> bool:
    match = _TIME.fullmatch(text)
    return match is not None and (match[2][0] == "0" or math.gcd(int(match[1]), int(match[2])) > 1)


def _choices(gold: Choice, answer: Value, equality: Equality) -> bool | None:
    if isinstance(answer, Words):
        return gold.letter.lower() == answer.words
    if not isinstance(answer, Choice):
        return gold.value is not None and compare(gold.value, answer, equality)
    if gold.letter != answer.letter:
        return False
    return gold.value is None or answer.value is None or compare(gold.value, answer.value, equality)


def _numbers(gold: Number, answer: Number, equality: Equality) -> bool:
    units = [value.unit or "%" * value.is_percent for value in (gold, answer)]
    if all(units) and units[0] != units[1]:  # a rate is another unit than what it counts
        return False
    left, right = gold.number, answer.number
    pairs = [(left, right)] if gold.is_percent or not answer.is_percent or abs(left) >= 1 else []
    if gold.is_percent != answer.is_percent:
        pairs.append((left / 100, right) if gold.is_percent else (left, right / 100))
    return any(_are_close(*pair, equality) for pair in pairs)


def _are_close(gold: Fraction, answer: Fraction, equality: Equality) -> bool:
    if gold == answer or (equality.rel_tol and abs(gold - answer) <= equality.rel_tol * abs(gold)):
        return True
    digits, places = (gold.denominator > 1 and _decimal_digits(answer)) or (0, 0)
    if digits < PRINTED_DIGITS or _decimal_digits(gold):
        return False
    if abs(gold - answer) < 1 and abs(gold) < MAX_DOUBLE and float(gold) == float(answer):
        return True
    return gold * answer > 0 and -0.5 <= (abs(gold) - abs(answer)) * 10**places < 1  # rounded or cut


PRINTED_DIGITS = 14
"""Computers print 15 to 17 significant digits, and may omit a final zero."""
MAX_DOUBLE = 10**300
"""Below the largest double."""


def _decimal_digits(number: Fraction) -> tuple[int, int] | None:
    """Return a decimal's significant digits and decimal places; None where no decimal writes it in full: 1/12."""
    rest, places = number.denominator, 0
    for prime in (2, 5):
        power = 0
        while rest % prime == 0:
            rest //= prime
            power += 1
        places = max(places, power)
    if rest > 1 or places > MAX_DIGITS:
        return None
    return len(str(abs(number.numerator) * 10**places // number.denominator)), places


def _named(gold: Equation, answer: Value, equality: Equality) -> bool | None:
    if not isinstance(answer, Equation):
        return compare(gold.value, answer, equality)
    is_other = are_names_different(gold.name, answer.name)
    if is_other and not (is_open(gold) and is_open(answer)):
        return False
    same = False if is_other else compare(gold.value, answer.value, equality)
    if same or not (is_open(gold) and is_open(answer)):
        return same
    equivalent = equality.formulas(gold.text, answer.text)
    return True if equivalent else None if None in (same, equivalent) else False


_DECORATION = re.compile(r"^m(?=\\)|\\(?:angle|triangle|overline|overrightarrow)(?![a-z])|[\s{}]")
_WORD = re.compile(r"(?<![A-Za-z\\])[A-Za-z]{3,}|\s[A-Za-z]{2,}|^$")


def are_names_different(gold: str, answer: str) -> bool:
    """Whether two names of mathematics are not one: words name no variable, `AB` is `BA`, and `y` a function of x."""
    if _WORD.search(gold) or _WORD.search(answer):
        return False
    names = [_DECORATION.sub("", name) for name in (gold, answer)]
    names = ["".join(sorted(name)) if name.isupper() else name for name in names]
    return names[0] != names[1] and not ("y" in names and any(name.endswith("(x)") for name in names))


def _digits(value: Digits, other: Value) -> bool:
    """Compare digit by digit, since a conversion of the base may be the question."""
    if isinstance(other, Digits):
        return (value.digits, value.qualifier) == (other.digits, other.qualifier)
    return spelling(other).lower().removesuffix(":00") == value.digits


def _words(gold: Words, answer: Words, equality: Equality) -> bool | None:
    if gold.words == answer.words:
        # Case tells variables apart, not words.
        return len(gold.words) > 1 or gold.text == answer.text
    # `ab` and `ba` may be the same product.
    if len(gold.words) <= LONGEST_PRODUCT and sorted(gold.words) == sorted(answer.words):
        return equality.formulas(gold.text, answer.text)
    return False


def _formula(gold: Value, answer: Value, equality: Equality) -> bool | None:
    for value in (gold, answer):
        if isinstance(value, Words) and len(value.words) > LONGEST_PRODUCT:
            return False
    return equality.formulas(_symbols(gold), _symbols(answer))


def _symbols(value: Value) -> str:
    """Return the text for the symbolic engine: for a number, without currency and unit."""
    return str(value.number) if isinstance(value, Number) else value.text


def _items(gold: Items, answer: Items, equality: Equality) -> bool | None:
    gold_names, answer_names = _names(gold), _names(answer)
    if gold_names and answer_names:
        return gold_names.keys() == answer_names.keys() and _all(
            [compare(gold_names[name], answer_names[name], equality) for name in gold_names]
        )
    if gold_names or (answer_names and gold.is_ordered):
        gold, answer = _in_order(gold, gold_names), _in_order(answer, answer_names)
    if gold.is_ordered or answer.is_ordered:
        # A bare `1, 2` may stand for (1, 2) in the same order, but a set does not, nor [1, 2) for (1, 2).
        brackets = {gold.brackets, answer.brackets}
        # Braces without a backslash, invisible in LaTeX, may stand for (1, 2) too.
        if len(brackets) > 1 and ("" not in brackets or "(:)" in brackets) and brackets != {"{", "()"}:
            return False
        if len(gold.items) != len(answer.items):
            return False
        return _all([compare(a, b, equality) for a, b in zip(gold.items, answer.items, strict=True)])
    table = [[compare(a, b, equality) for b in answer.items] for a in gold.items]
    return _all([_any(row) for row in table] + [_any(column) for column in zip(*table, strict=True)])


def _names(items: Items) -> dict[str, Value]:
    """Name -> value of a list such as `x = 2, y = 1`; empty where members have no name, or one name."""
    named = {item.name: item.value for item in items.items if isinstance(item, Equation) and item.name}
    return named if len(named) == len(items.items) > 1 and not items.brackets else {}


def _in_order(items: Items, names: dict[str, Value]) -> Items:
    """A list as a tuple: values of neighbours in the alphabet, as x and y, in its order, and others as they stand."""
    order = sorted(names)
    are_neighbours = all(ord(b[0]) - ord(a[0]) <= 1 for a, b in pairwise(order))
    values = [names[name] for name in (order if are_neighbours else names)]
    return Items(items.text, "()", tuple(values)) if names else items


def _all(results: Sequence[bool | None]) -> bool | None:
    if False in results:
        return False
    return None if None in results else True


def _any(results: Sequence[bool | None]) -> bool | None:
    if True in results:
        return True
    return None if None in results else False
