r"""Equality of rational functions, exactly and within bounds: `(x+1)^2` is `x^2+2x+1`, without the symbolic engine.

    sum     = [+-] product {(+|-) product}        operand = power {power}, one after the other: 2x(y+1)
    product = operand {(*|/) operand}             power   = atom [^ digit | ^{integer}]
    atom    = number | letter | (sum) | {sum} | \frac{sum}{sum}

What else a formula may hold is left to the engine, and what two readers may read in two ways: a letter before a bracket
(f(x)), a product behind a slash (1/2x), a number before a fraction (a mixed number), e, i and d.
"""

from __future__ import annotations

import re
from collections import defaultdict
from fractions import Fraction
from functools import lru_cache

MAX_CHARS = 200
MAX_EXPONENT = 24
MAX_DEPTH = 24
MAX_PRODUCTS = 4000
"""Products of two terms in one formula, which take some microseconds each."""
MAX_DIGITS = 200
"""Digits of a coefficient."""

Term = tuple[tuple[str, int], ...]
"""Letters with their exponents, in order."""
Polynomial = dict[Term, Fraction]

_ONE: Polynomial = {(): Fraction(1)}
_TOKEN = re.compile(r"\s*(?:([0-9]+(?:\.[0-9]+)?)|([A-Za-z])|(\\frac(?![A-Za-z])|[-+*/^(){}]))")
_OTHER_LETTERS = frozenset("eidEID")
"""A constant, the imaginary unit, a differential."""
_MATRIX = re.compile(r"\\begin\{([pb]?matrix)\}(.*)\\end\{\1\}", re.DOTALL)


class _OtherError(Exception):
    """The text is another formula than those read here, or a larger one."""


def are_equal(gold: str, answer: str) -> bool | None:
    """Whether two formulas, or two matrices of them, are equal; None where one is none of those read here."""
    if max(len(gold), len(answer)) > MAX_CHARS:
        return None
    if (matrices := (_MATRIX.fullmatch(gold), _MATRIX.fullmatch(answer))) != (None, None):
        return _are_equal_matrices(*(match and match[2] for match in matrices))
    left, right = _read(gold), _read(answer)
    return None if left is None or right is None else left == right or _cross(*left, *right)


def _are_equal_matrices(gold: str | None, answer: str | None) -> bool | None:
    if gold is None or answer is None:
        return None
    left, right = ([row.split("&") for row in text.split(r"\\")] for text in (gold, answer))
    cells = [are_equal(*pair) for rows in zip(left, right, strict=False) for pair in zip(*rows, strict=False)]
    if None in cells:
        return None
    return [len(row) for row in left] == [len(row) for row in right] and all(cells)


def _cross(numerator: Polynomial, denominator: Polynomial, other: Polynomial, below: Polynomial) -> bool | None:
    reader = _Reader("")
    try:
        return reader.times(numerator, below) == reader.times(other, denominator)
    except _OtherError:
        return None


@lru_cache(maxsize=64)  # each gold is compared with every completion of its group
def _read(text: str) -> tuple[Polynomial, Polynomial] | None:
    """Numerator and denominator of a formula; None where it is none of those read here."""
    try:
        return _Reader(text).whole()
    except _OtherError:
        return None


class _Reader:
    """Reads one formula by recursive descent; everything is refused that goes beyond a bound."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = []
        at, text = 0, text.rstrip()
        while at < len(text):
            if (match := _TOKEN.match(text, at)) is None:
                raise _OtherError
            self._tokens.append(match[0].strip())
            at = match.end()
        self._tokens.append("")
        self._at = self._products = self._depth = 0

    def whole(self) -> tuple[Polynomial, Polynomial]:
        fraction = self._sum()
        self._expect("")
        return fraction

    def times(self, left: Polynomial, right: Polynomial) -> Polynomial:
        self._products += len(left) * len(right)
        if self._products > MAX_PRODUCTS:
            raise _OtherError
        found: defaultdict[Term, Fraction] = defaultdict(Fraction)
        for term, number in left.items():
            for other, factor in right.items():
                exponents: defaultdict[str, int] = defaultdict(int)
                for letter, exponent in term + other:
                    exponents[letter] += exponent
                found[tuple(sorted(exponents.items()))] += number * factor
        return _bounded(found)

    def _sum(self) -> tuple[Polynomial, Polynomial]:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _OtherError
        sign = self._take("+", "-") or "+"
        above, below = self._product()
        if sign == "-":
            above = {term: -number for term, number in above.items()}
        while sign := self._take("+", "-"):
            other, under = self._product()
            left, right = (above, other) if below == under else (self.times(above, under), self.times(other, below))
            found = defaultdict(Fraction, left)
            for term, number in right.items():
                found[term] += number if sign == "+" else -number
            above, below = _bounded(found), below if below == under else self.times(below, under)
        self._depth -= 1
        return above, below

    def _product(self) -> tuple[Polynomial, Polynomial]:
        above, below = self._operand()
        while sign := self._take("*", "/"):
            other, under = self._operand(is_single=sign == "/")
            if sign == "/":
                other, under = under, other
                if not under:
                    raise _OtherError
            above, below = self.times(above, other), self.times(below, under)
        return above, below

    def _operand(self, *, is_single: bool = False) -> tuple[Polynomial, Polynomial]:
        above, below = self._power()
        while (token := self._tokens[self._at]) and (token.isalpha() or token in ("(", r"\frac")):
            before = self._tokens[self._at - 1]
            if is_single or (token == "(" and before.isalpha()) or (token == r"\frac" and before[-1].isdigit()):
                raise _OtherError
            other, under = self._power()
            above, below = self.times(above, other), self.times(below, under)
        return above, below

    def _power(self) -> tuple[Polynomial, Polynomial]:
        above, below = self._atom()
        if self._take("^"):
            exponent = self._exponent()
            if exponent < 0:
                above, below = below, above
            if not below or (exponent == 0 and not above):
                raise _OtherError
            whole = above, below
            above, below = _ONE, _ONE
            for _ in range(abs(exponent)):
                above, below = self.times(above, whole[0]), self.times(below, whole[1])
        return above, below

    def _exponent(self) -> int:
        if not self._take("{"):
            text = self._next()
            if len(text) != 1:  # x^12 is x^1 2
                raise _OtherError
        else:
            text = self._take("-") + self._next()
            self._expect("}")
        if not text.removeprefix("-").isdigit() or len(text) > 3 or abs(int(text)) > MAX_EXPONENT:
            raise _OtherError
        return int(text)

    def _atom(self) -> tuple[Polynomial, Polynomial]:
        token = self._next()
        if token.isalpha() and token not in _OTHER_LETTERS:
            return {((token, 1),): Fraction(1)}, _ONE
        if token[:1].isdigit():
            return _bounded({(): Fraction(token)}), _ONE
        if token in ("(", "{"):
            fraction = self._sum()
            self._expect(")" if token == "(" else "}")
            return fraction
        if token == r"\frac":
            (above, below), (other, under) = self._group(), self._group()
            if not other:
                raise _OtherError
            return self.times(above, under), self.times(below, other)
        raise _OtherError

    def _group(self) -> tuple[Polynomial, Polynomial]:
        self._expect("{")
        fraction = self._sum()
        self._expect("}")
        return fraction

    def _next(self) -> str:
        token = self._tokens[self._at]
        self._at += bool(token)
        return token

    def _take(self, *tokens: str) -> str:
        return self._next() if self._tokens[self._at] in tokens and self._tokens[self._at] else ""

    def _expect(self, token: str) -> None:
        if self._next() != token:
            raise _OtherError


def _bounded(polynomial: Polynomial) -> Polynomial:
    """The terms that are not zero."""
    limit = 10**MAX_DIGITS
    if any(abs(number.numerator) > limit or number.denominator > limit for number in polynomial.values()):
        raise _OtherError
    return {term: number for term, number in polynomial.items() if number}
