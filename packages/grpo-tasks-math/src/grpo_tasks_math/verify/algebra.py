r"""Equality of short formulas, exactly and within bounds, without the symbolic engine: `(x+1)^2` is `x^2+2x+1`.

    sum     = [+-] product {(+|-) product}        power = atom [^ digit | ^{integer}]
    product = operand {(*|/) operand}             atom  = number | letter | \pi | (sum) | {sum} | \frac{sum}{sum}
    operand = power {power}, side by side: 2x(y+1)        | \sqrt{sum} | \sin(sum) | …

A formula is a quotient of two polynomials in letters, π, square roots of integers and functions such as `\sin(2x)`.
Without functions two of them are equal or not; with functions, what is equal as polynomials is equal, what clearly
differs in floating point differs, and the rest is left to the engine. So is what a formula may hold besides, and what
two readers may read in two ways: a letter before a bracket (f(x)), a product behind a slash (1/2x), a number before a
fraction (a mixed number), what stands behind a function's bracket, e, i and d.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, lru_cache

MAX_CHARS = 200
MAX_EXPONENT = 24
MAX_DEPTH = 24
MAX_PRODUCTS = 4000
"""Products of two terms in one formula, which take some microseconds each."""
MAX_DIGITS = 200
"""Digits of a coefficient."""
MAX_RADICAND = 10**6
CLEARLY = 1e-6
"""Difference in floating point, relative to the terms, that is no rounding; see `_value_of_function`."""

FUNCTIONS: dict[str, Callable[[float], float]] = {
    r"\sqrt": math.sqrt, r"\sin": math.sin, r"\cos": math.cos, r"\tan": math.tan, r"\ln": math.log,
}  # fmt: skip

Term = tuple[tuple[str, int], ...]
"""Letters with their exponents, in order: `x`, `π`, `√6` (of an integer without square factors, once), `\\sin…`."""
Polynomial = dict[Term, Fraction]

_TOKEN = re.compile(
    r"\s*(?:([0-9]+(?:\.[0-9]+)?)|([A-Za-z])|(\\(?:frac|pi|sqrt|sin|cos|tan|ln)(?![A-Za-z])|[-+*/^(){}]))"
)
_OTHER_LETTERS = frozenset("eidEID")
"""A constant, the imaginary unit, a differential."""
_MATRIX = re.compile(r"\\begin\{([pb]?matrix)\}(.*)\\end\{\1\}", re.DOTALL)
_ONE: Polynomial = {(): Fraction(1)}


class _OtherError(Exception):
    """The text is another formula than those read here, or a larger one."""


@dataclass(frozen=True)
class _Quotient:
    """`above` / `below`, and the arguments of the functions that are letters in them."""

    above: Polynomial
    below: Polynomial
    arguments: dict[str, tuple[str, _Quotient]]


def are_equal(gold: str, answer: str) -> bool | None:
    """Whether two formulas, or two matrices of them, are equal; None where that is not decided here."""
    if max(len(gold), len(answer)) > MAX_CHARS:
        return None
    matrices = _MATRIX.fullmatch(gold), _MATRIX.fullmatch(answer)
    if matrices[0] and matrices[1]:
        return _are_equal_matrices(matrices[0][2], matrices[1][2])
    left, right = _read(gold), _read(answer)
    if left is None or right is None:
        return None
    try:
        reader = _Reader("")
        sides = reader.times(left.above, right.below), reader.times(right.above, left.below)
        if sides[0] == sides[1]:
            return True
        arguments = left.arguments | right.arguments
        return False if not arguments or _clearly_differ(*sides, arguments) else None
    except (_OtherError, ArithmeticError, ValueError):  # of floating point: a logarithm of a negative number
        return None


def _are_equal_matrices(gold: str, answer: str) -> bool | None:
    left, right = ([row.split("&") for row in text.split(r"\\")] for text in (gold, answer))
    cells = [are_equal(*pair) for rows in zip(left, right, strict=False) for pair in zip(*rows, strict=False)]
    if None in cells:
        return None
    return [len(row) for row in left] == [len(row) for row in right] and all(cells)


def _clearly_differ(left: Polynomial, right: Polynomial, arguments: dict[str, tuple[str, _Quotient]]) -> bool:
    """Whether two polynomials differ where each letter is some number above 1, as in `symbolic`."""
    letters = set[str]()
    for each in (*arguments.values(), ("", _Quotient(left, right, {}))):
        letters |= _letters(each[1].above) | _letters(each[1].below)
    names = sorted(letter for letter in letters if letter.isascii() and letter.isalpha())
    point = {name: (place + 11) / 7 for place, name in enumerate(names)}

    def value(polynomial: Polynomial) -> tuple[float, float]:
        terms = [float(number) * math.prod(at(*each) for each in term) for term, number in polynomial.items()]
        return math.fsum(terms), math.fsum(map(abs, terms))

    @cache
    def base(letter: str) -> float:
        if letter in arguments:
            name, argument = arguments[letter]
            return _value_of_function(name, value(argument.above), value(argument.below))
        return point.get(letter) or (math.pi if letter == "π" else math.sqrt(int(letter[1:])))

    def at(letter: str, exponent: int) -> float:
        return float(base(letter) ** exponent)

    (one, size), (other, other_size) = value(left), value(right)
    return abs(one - other) > CLEARLY * (size + other_size)


def _value_of_function(name: str, above: tuple[float, float], below: tuple[float, float]) -> float:
    """A function of a quotient, each part with the size of its terms, where rounding is not enlarged much.

    Raises:
        ValueError: it is.
    """
    argument = above[0] / below[0]
    found = FUNCTIONS[name](argument)
    if max(above[1], below[1], 1 / abs(argument), 1 / abs(below[0]), abs(found)) > 100:
        raise ValueError
    return found


def _letters(polynomial: Polynomial) -> set[str]:
    return {letter for term in polynomial for letter, _ in term}


@lru_cache(maxsize=64)  # each gold is compared with every completion of its group
def _read(text: str) -> _Quotient | None:
    """A formula; None where it is none of those read here."""
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
        self._behind_function = -1
        self._arguments: dict[str, tuple[str, _Quotient]] = {}

    def whole(self) -> _Quotient:
        """The formula, to the end of the text."""
        quotient = self._sum()
        self._expect("")
        return _Quotient(*quotient, self._arguments)

    def times(self, left: Polynomial, right: Polynomial) -> Polynomial:
        """The product."""
        self._products += len(left) * len(right)
        if self._products > MAX_PRODUCTS:
            raise _OtherError
        found: defaultdict[Term, Fraction] = defaultdict(Fraction)
        for one, number in left.items():
            for other, factor in right.items():
                term, square = _joined(one + other)
                found[term] += number * factor * square
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
                other, under = _inverted(other, under)
            above, below = self.times(above, other), self.times(below, under)
        return above, below

    def _operand(self, *, is_single: bool = False) -> tuple[Polynomial, Polynomial]:
        above, below = self._power()
        while (token := self._tokens[self._at]).isalpha() or token[:1] in ("(", "\\"):
            before = self._tokens[self._at - 1]
            if is_single or self._at == self._behind_function:
                raise _OtherError
            if (token == "(" and before.isalpha()) or (token == r"\frac" and before[-1].isdigit()):
                raise _OtherError
            other, under = self._power()
            above, below = self.times(above, other), self.times(below, under)
        return above, below

    def _power(self) -> tuple[Polynomial, Polynomial]:
        above, below = self._atom()
        if self._take("^"):
            if self._at - 1 == self._behind_function:
                raise _OtherError
            exponent = self._exponent()
            if exponent < 0:
                above, below = _inverted(above, below)
            if exponent == 0 and not above:
                raise _OtherError
            whole, above, below = (above, below), _ONE, _ONE
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
        if token == r"\pi" or (token.isalpha() and token not in _OTHER_LETTERS):
            return {(("π" if token == r"\pi" else token, 1),): Fraction(1)}, _ONE
        if token[:1].isdigit():
            return _bounded({(): Fraction(token)}), _ONE
        if token in ("(", "{"):
            quotient = self._sum()
            self._expect(")" if token == "(" else "}")
            return quotient
        if token == r"\frac":
            (above, below), (other, under) = self._group("{}"), _inverted(*self._group("{}"))
            return self.times(above, other), self.times(below, under)
        if token in FUNCTIONS:
            is_root = token == r"\sqrt"
            above, below = self._group("{}" if is_root else "()")
            if is_root and above.keys() | below.keys() <= {()}:
                return _root(above.get((), Fraction(0)) / below[()]), _ONE
            meaning = repr((token, sorted(above.items()), sorted(below.items()))).encode()
            name = f"{token} {hashlib.blake2b(meaning, digest_size=16).hexdigest()}"
            self._arguments[name] = token, _Quotient(above, below, {})
            self._behind_function = -1 if is_root else self._at
            return {((name, 1),): Fraction(1)}, _ONE
        raise _OtherError

    def _group(self, brackets: str) -> tuple[Polynomial, Polynomial]:
        self._expect(brackets[0])
        quotient = self._sum()
        self._expect(brackets[1])
        return quotient

    def _next(self) -> str:
        token = self._tokens[self._at]
        self._at += bool(token)
        return token

    def _take(self, *tokens: str) -> str:
        return self._next() if self._tokens[self._at] in tokens and self._tokens[self._at] else ""

    def _expect(self, token: str) -> None:
        if self._next() != token:
            raise _OtherError


def _joined(letters: Iterable[tuple[str, int]]) -> tuple[Term, int]:
    """The term of the letters of two, and the factor that its two square roots leave: √2 √6 = 2 √3."""
    exponents: defaultdict[str, int] = defaultdict(int)
    radicand = square = 1
    for letter, exponent in letters:
        if letter[0] == "√":
            common = math.gcd(radicand, int(letter[1:]))
            square *= common
            radicand = radicand * int(letter[1:]) // common**2
        else:
            exponents[letter] += exponent
    if radicand > 1:
        exponents[f"√{radicand}"] = 1
    return tuple(sorted(exponents.items())), square


def _root(number: Fraction) -> Polynomial:
    """The square root of a number: √(p/q) = √(pq) / q, without square factors."""
    rest = number.numerator * number.denominator
    if not 0 <= rest <= MAX_RADICAND:
        raise _OtherError
    square, divisor = 1, 2
    while divisor * divisor <= rest:
        while rest % divisor**2 == 0:
            rest, square = rest // divisor**2, square * divisor
        divisor += 1
    return _bounded({((f"√{rest}", 1),) if rest > 1 else (): Fraction(square * min(rest, 1), number.denominator)})


def _inverted(above: Polynomial, below: Polynomial) -> tuple[Polynomial, Polynomial]:
    if not above:
        raise _OtherError
    return below, above


def _bounded(polynomial: Polynomial) -> Polynomial:
    """The terms that are not zero."""
    limit = 10**MAX_DIGITS
    if any(abs(number.numerator) > limit or number.denominator > limit for number in polynomial.values()):
        raise _OtherError
    return {term: number for term, number in polynomial.items() if number}
