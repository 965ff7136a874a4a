"""Three-valued comparison of two read answers: equal, different, or not decided without the symbolic engine."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from grpo_tasks_math.verify.exact import MAX_DIGITS
from grpo_tasks_math.verify.values import (
    Based,
    Choice,
    Contradiction,
    Equation,
    Formula,
    Items,
    NotANumber,
    Number,
    Value,
    Words,
)

FormulaEquality = Callable[[str, str], bool | None]
"""(gold, answer) in cleaned LaTeX → whether they are equal; None when not decided."""


def undecided(gold: str, answer: str) -> None:
    """Decide nothing: the equality of formulas on the fast path."""


@dataclass(frozen=True, slots=True)
class Equality:
    """Rules of equality.

    Attributes:
        formulas: Equality of two formulas.
        rel_tol: Largest difference between two numbers, relative to the gold; 0 for exact equality.
    """

    formulas: FormulaEquality = undecided
    rel_tol: Fraction = Fraction(0)


EXACT = Equality()


_INNER_SPACE = re.compile(r"(?<!\w) | (?!\w)")


def spelling(value: Value) -> str:
    """Return the text without the spaces that carry no meaning; `1 2` keeps its own."""
    return _INNER_SPACE.sub("", value.text)


def compare(gold: Value, answer: Value, equality: Equality = EXACT) -> bool | None:
    """Return whether `answer` says what `gold` says; None only where `equality` decides nothing.

    * Numbers are compared exactly unless there is a `rel_tol`: an approximation is another number. Only a fraction that
      no decimal writes in full (1/12) equals its first `PRINTED_DIGITS` digits, which is what a computer prints for it.
    * A percent sign is read as the gold reads it: 20% equals 20 and 0.2, and both equal 20%.
    * Units count only when both are known and differ; words that follow a number otherwise say nothing.
    * Several values are never one value; a set has no order, a tuple and an interval have.
    * `x = 5` equals `5`; `x = 5` and `y = 5` differ.
    * `nan` equals nothing; `6 = 5` equals itself alone.
    """
    if isinstance(gold, NotANumber) or isinstance(answer, NotANumber):
        return False
    if spelling(gold) == spelling(answer):
        return True
    if isinstance(answer, Contradiction):
        return False
    match gold, answer:
        case Number(), Number():
            return _numbers(gold, answer, equality)
        # Against a number, `5m` is five metres; a gold `5m` may be a formula, so 5 is not enough for it.
        case Number(), Formula(quantity=Number() as quantity):
            return _numbers(gold, quantity, equality)
        case Equation(), _:
            return _equation(gold, answer, equality)
        case _, Equation():
            return compare(gold, answer.value, equality)
        case Based(), _:
            return _based(gold, answer)
        case _, Based():
            return _based(answer, gold)
        case Choice(), Choice():
            return gold.letter == answer.letter
        case Choice(), Words():
            return gold.letter.lower() == answer.words
        case Words(), Words():
            return _words(gold, answer, equality)
        case Items(), Items():
            return _items(gold, answer, equality)
    if isinstance(gold, Formula) or isinstance(answer, Formula):
        return _formula(gold, answer, equality)
    return False


def _numbers(gold: Number, answer: Number, equality: Equality) -> bool:
    if gold.unit and answer.unit and gold.unit != answer.unit:
        return False
    if _are_close(gold.number, answer.number, equality):
        return True
    if gold.is_percent == answer.is_percent:
        return False
    scale = Fraction(1, 100)
    if answer.is_percent:
        return _are_close(gold.number, answer.number * scale, equality)
    return _are_close(gold.number * scale, answer.number, equality)


def _are_close(gold: Fraction, answer: Fraction, equality: Equality) -> bool:
    if gold == answer or abs(gold - answer) <= equality.rel_tol * abs(gold):
        return True
    is_printed = _decimal_digits(gold) is None and (_decimal_digits(answer) or 0) >= PRINTED_DIGITS
    return is_printed and abs(gold - answer) <= PRINTED_ERROR * abs(gold)


PRINTED_DIGITS = 14
"""Computers print 15 to 17 significant digits, and may omit a final zero."""
PRINTED_ERROR = Fraction(1, 10 ** (PRINTED_DIGITS - 1))
"""Largest relative error of a number printed with this many digits."""


def _decimal_digits(number: Fraction) -> int | None:
    """Return the significant digits of a decimal; None for a number that no decimal writes in full, such as 1/12."""
    rest, places = number.denominator, 0
    for prime in (2, 5):
        power = 0
        while rest % prime == 0:
            rest //= prime
            power += 1
        places = max(places, power)
    if rest > 1 or places > MAX_DIGITS:
        return None
    return len(str(abs(number.numerator) * 10**places // number.denominator))


def _equation(gold: Equation, answer: Value, equality: Equality) -> bool | None:
    if isinstance(answer, Equation):
        if gold.name and answer.name:
            # One-letter names are the variables of the problem; `Answer = 5` and `f(x) = 5` name the same thing.
            if len(gold.name) == len(answer.name) == 1 and gold.name != answer.name:
                return False
            return compare(gold.value, answer.value, equality)
        if gold.name or answer.name:
            return _either(compare(gold.value, answer.value, equality), equality.formulas(gold.text, answer.text))
        return equality.formulas(gold.text, answer.text)
    if gold.name:
        return compare(gold.value, answer, equality)
    # `6 * 7 = 42` as a gold means 42; `x^2 + y^2 = 4` means itself.
    if isinstance(gold.value, Number) and not re.search(r"[A-Za-z]", gold.text):
        return compare(gold.value, answer, equality)
    return equality.formulas(gold.text, answer.text)


def _either(first: bool | None, second: bool | None) -> bool | None:
    if first or second:
        return True
    return None if first is None or second is None else False


def _based(based: Based, other: Value) -> bool:
    """Compare digit by digit, since the conversion itself is the question."""
    if isinstance(other, Based):
        return (based.digits, based.base) == (other.digits, other.base)
    return spelling(other).lower() == based.digits


LONGEST_SYMBOL = 3
"""Longer words are not products of variables, so the symbolic engine cannot compare them."""


def _words(gold: Words, answer: Words, equality: Equality) -> bool | None:
    if gold.words == answer.words:
        # Case tells variables apart, not words.
        return len(gold.words) > 1 or gold.text == answer.text
    # `ab` and `ba` may be the same product.
    if len(gold.words) <= LONGEST_SYMBOL and sorted(gold.words) == sorted(answer.words):
        return equality.formulas(gold.text, answer.text)
    return False


def _formula(gold: Value, answer: Value, equality: Equality) -> bool | None:
    for value in (gold, answer):
        if isinstance(value, Words) and len(value.words) > LONGEST_SYMBOL:
            return False
    return equality.formulas(_symbols(gold), _symbols(answer))


def _symbols(value: Value) -> str:
    """Return the text for the symbolic engine: for a number, without currency and unit."""
    return str(value.number) if isinstance(value, Number) else value.text


def _items(gold: Items, answer: Items, equality: Equality) -> bool | None:
    if gold.is_ordered or answer.is_ordered:
        # A bare `1, 2` may stand for (1, 2) in the same order, but a set does not, nor [1, 2) for (1, 2).
        brackets = {gold.brackets, answer.brackets}
        # Braces without a backslash, invisible in LaTeX, may stand for (1, 2) too.
        if len(brackets) > 1 and "" not in brackets and brackets != {"{", "()"}:
            return False
        if len(gold.items) != len(answer.items):
            return False
        return _all([compare(a, b, equality) for a, b in zip(gold.items, answer.items, strict=True)])
    table = [[compare(a, b, equality) for b in answer.items] for a in gold.items]
    return _all([_any(row) for row in table] + [_any(column) for column in zip(*table, strict=True)])


def _all(results: Sequence[bool | None]) -> bool | None:
    if False in results:
        return False
    return None if None in results else True


def _any(results: Sequence[bool | None]) -> bool | None:
    if True in results:
        return True
    return None if None in results else False
