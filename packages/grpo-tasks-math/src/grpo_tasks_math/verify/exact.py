"""Exact arithmetic on fractions: a bounded reader of numbers and numeric expressions, plain or LaTeX."""

from __future__ import annotations

import math
import re
from fractions import Fraction

MAX_CHARS = 512
"""Longest text that is read as a numeric expression; longer ones are neither answers nor steps."""
MAX_DIGITS = 300
"""Longest literal; far above any answer, far below where Python's integers become slow or refuse."""
MAX_BITS = 8192
"""Size of any intermediate numerator or denominator, so that a tower of exponents stops before it is built."""
MAX_EXPONENT = 2048
"""Largest exponent after `e` or `^`; the size of the result is bounded by `MAX_BITS` besides."""
MAX_FACTORIAL = 200
"""200! has 1,246 bits."""
MAX_DEPTH = 40
"""Nesting of brackets, signs and exponents, well inside Python's recursion limit."""

_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_TOKEN = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<repeating>(?P<fixed>\d*\.\d*)
        (?:\\(?:overline|bar|dot)\s?\{(?P<cycle>\d{1,40})\} | (?<=\.)\((?P<bracket>\d{1,40})\)))
  | (?P<ellipsis>\d*\.\d*?(?P<last>\d)(?P=last){2,}(?:\.\.\.|\\[lc]?dots\b))
  | (?P<science>(?:\d+(?:\.\d*)?|\.\d+)[eE](?P<exponent>[+-]?\d{1,6})(?![\d.]))
  | (?P<mixed>(?P<whole>\d+)\ +(?P<top>[1-9]\d*)\ ?/\ ?(?P<bottom>\d+)(?![\d.,^!]))
  | (?P<grouped>\d{1,3}(?:(?:,\d{3})+|(?:\ \d{3})+)(?![\d,])(?:\.\d+)?)
  | (?P<number>\d+(?:\.\d*)?|\.\d+)
  | (?P<command>\\(?:frac|sqrt)(?![A-Za-z]))
  | (?P<operator>\*\*|[-+*/^(){}\[\]!%])
    """,
    re.VERBOSE | re.ASCII,
)


_CLOSING = {"(": ")", "[": "]", "{": "}"}


class _NotExactError(Exception):
    """The text is not a numeric expression with a rational value within the bounds."""


def evaluate(text: str) -> Fraction | None:
    r"""Return the exact value of a numeric expression, or None where there is none within the bounds.

    Reads decimals, `1,000`, `1 000`, `1e3`, `0.\overline{3}`, `0.333...` (three equal digits or more), mixed numbers
    (`3 1/2`, `3\frac{1}{2}`), `+ - * / ^ ** ! %`, brackets, `\frac` and roots with a rational value. A `%` divides by
    100. Never raises; time and memory are bounded by the constants above.
    """
    if _INTEGER.fullmatch(text):
        return Fraction(int(text))
    if len(text) > MAX_CHARS:
        return None
    try:
        return _Parser(_tokens(text)).whole()
    except (_NotExactError, ZeroDivisionError):
        return None


def decimal_places(text: str) -> int | None:
    """Return the digits after the point of a plain decimal (0 for an integer), None for any other form."""
    match = re.fullmatch(r"[+-]?[0-9,]*(?:\.([0-9]*))?", text.strip())
    return len(match[1] or "") if match else None


_Token = Fraction | str


def _tokens(text: str) -> list[_Token]:
    matches = list(_TOKEN.finditer(text))
    if sum(len(match[0]) for match in matches) < len(text):  # something between them is no token
        raise _NotExactError
    return [
        match[0] if match.lastgroup in ("command", "operator") else _literal(match)
        for match in matches
        if match.lastgroup != "space"
    ]


def _literal(match: re.Match[str]) -> Fraction:
    text = match[0]
    if len(text) > MAX_DIGITS:
        raise _NotExactError
    match match.lastgroup:
        case "repeating":
            return _repeating(match["fixed"], match["cycle"] or match["bracket"])
        case "ellipsis":
            return _repeating(text[: match.end("last") - match.start()], match["last"])
        case "science":
            if abs(int(match["exponent"])) > MAX_EXPONENT:
                raise _NotExactError
            return Fraction(text)
        case "grouped":
            return Fraction(text.replace(",", "").replace(" ", ""))
        case "mixed":
            whole, top, bottom = int(match["whole"]), int(match["top"]), int(match["bottom"])
            if top < bottom:
                return whole + Fraction(top, bottom)
            # `2 500/3` groups digits.
            if len(match["top"]) == 3:
                return Fraction(int(match["whole"] + match["top"]), bottom)
            raise _NotExactError
    return Fraction(text)


def _repeating(fixed: str, cycle: str) -> Fraction:
    places = len(fixed) - fixed.index(".") - 1
    head = Fraction(fixed.rstrip(".") or "0") if fixed != "." else Fraction(0)
    return head + Fraction(int(cycle), (10 ** len(cycle) - 1) * 10**places)


def _bounded(value: Fraction) -> Fraction:
    if value.numerator.bit_length() > MAX_BITS or value.denominator.bit_length() > MAX_BITS:
        raise _NotExactError
    return value


def _root(value: Fraction, degree: int) -> Fraction:
    """Return the exact principal root, or refuse."""
    if value < 0 or not 1 <= degree <= 64:
        raise _NotExactError
    return Fraction(_integer_root(value.numerator, degree), _integer_root(value.denominator, degree))


def _integer_root(value: int, degree: int) -> int:
    if value in (0, 1) or degree == 1:
        return value
    # Newton's method from above; the start is a power of two that is at least the root.
    guess = 1 << -(-value.bit_length() // degree)
    while True:
        better = ((degree - 1) * guess + value // guess ** (degree - 1)) // degree
        if better >= guess:
            break
        guess = better
    if guess**degree != value:
        raise _NotExactError
    return guess


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        base, exponent = _root(base, exponent.denominator), Fraction(exponent.numerator)
    count = abs(exponent.numerator)
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if count > MAX_EXPONENT or (bits > 1 and bits * count > MAX_BITS):
        raise _NotExactError
    if base == 0 and exponent <= 0:
        raise _NotExactError
    return base**exponent.numerator


class _Parser:
    """Recursive descent over tokens; every method consumes what it reads.

    sum := product (('+' | '-') product)*;  product := signed (('*' | '/' | nothing before a bracket) signed)*;
    signed := ('+' | '-')* power;  power := postfix (('^' | '**') signed)?;  postfix := atom ('!' | '%')*.
    r
    """

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._position = 0
        self._depth = 0

    def whole(self) -> Fraction:
        value = self._sum()
        if self._position != len(self._tokens):
            raise _NotExactError
        return value

    def _peek(self) -> _Token | None:
        return self._tokens[self._position] if self._position < len(self._tokens) else None

    def _accept(self, *operators: str) -> str | None:
        token = self._peek()
        if isinstance(token, str) and token in operators:
            self._position += 1
            return token
        return None

    def _sum(self) -> Fraction:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _NotExactError
        value = self._product()
        while operator := self._accept("+", "-"):
            term = self._product()
            value = _bounded(value + term if operator == "+" else value - term)
        self._depth -= 1
        return value

    def _product(self) -> Fraction:
        value = self._signed()
        has_divided = False
        while True:
            if operator := self._accept("*", "/"):
                factor = self._signed()
                value = _bounded(value * factor if operator == "*" else value / factor)
                has_divided = has_divided or operator == "/"
            elif self._peek() in ("(", "\\frac", "\\sqrt"):
                # 1/2(3) reads as 1/6 to some and 3/2 to others: no value.
                if has_divided:
                    raise _NotExactError
                value = _bounded(value * self._signed())
            else:
                return value

    def _signed(self) -> Fraction:
        sign = 1
        for _ in range(2):
            if self._accept("+", "-") == "-":
                sign = -sign
        return sign * self._power()

    def _power(self) -> Fraction:
        base = self._postfix()
        if self._accept("^", "**") is None:
            return base
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _NotExactError
        value = _bounded(_power(base, self._signed()))
        self._depth -= 1
        return value

    def _postfix(self) -> Fraction:
        value = self._atom()
        while operator := self._accept("!", "%"):
            if operator == "%":
                value /= 100
            elif value.denominator == 1 and 0 <= value <= MAX_FACTORIAL:
                value = Fraction(math.factorial(value.numerator))
            else:
                raise _NotExactError
        return value

    def _atom(self) -> Fraction:
        token = self._peek()
        self._position += 1
        if isinstance(token, Fraction):
            return self._with_fraction(token)
        match token:
            case "(" | "[" | "{":
                return self._within(token)
            case "\\frac":
                top, bottom = self._group(), self._group()
                return _bounded(top / bottom)
            case "\\sqrt":
                degree = self._within("[") if self._accept("[") else Fraction(2)
                if degree.denominator != 1:
                    raise _NotExactError
                return _root(self._group(), degree.numerator)
        raise _NotExactError

    def _group(self) -> Fraction:
        if self._accept("{") is None:
            raise _NotExactError
        return self._within("{")

    def _within(self, opening: str) -> Fraction:
        """Read what is behind a bracket, with the one that closes it."""
        value = self._sum()
        if self._accept(_CLOSING[opening]) is None:
            raise _NotExactError
        return value

    def _with_fraction(self, whole: Fraction) -> Fraction:
        r"""Read `3\frac{1}{2}` as 3½, the only meaning it has in an answer, when the fraction is proper."""
        if whole.denominator != 1 or self._peek() != "\\frac":
            return whole
        self._position += 1
        top, bottom = self._group(), self._group()
        if not 0 < top < bottom:
            raise _NotExactError
        return whole + top / bottom
