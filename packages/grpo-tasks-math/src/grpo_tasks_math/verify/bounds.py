r"""Size bounds for the symbolic engine, estimated without evaluating anything.

An answer beyond them is wrong by rule: `10^{10^{10}}`, `(10^{10})!` or `(x+y+z)^{100}` takes the verifier microseconds.
Sizes are upper bounds in floating point, so no tower, factorial or product is computed here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import accumulate

from grpo_tasks_math.verify.exact import MAX_DIGITS

MAX_CHARS = 1000
"""Longest gold or answer for the symbolic engine, whose parser is slower than linear."""
MAX_DEPTH = 24
"""Most nested brackets: the parser uses about 15 Python frames for each."""
MAX_BITS = 32_768
"""Size of a number, or of all coefficients of an expression together: 9,800 digits, or 3,200!."""
MAX_TERMS = 1000
"""Terms of the expression when multiplied out."""
MAX_TOWER = 6
"""Nesting of exponents and roots."""
MAX_RELATIONS = 16
"""Relation signs, in a chain or in several relations."""
MAX_SETS = 12
r"""Operators between sets: `\cup`, `\cap`, `\setminus`."""
MAX_CELLS = 64
"""Separators between cells and rows of matrices."""
MAX_BARS = 8
"""`|` signs: the parser tries which of them open and which close."""
MAX_FUNCTIONS = 12
"""Function calls: simplification tries identities of every pair."""

_COUNTED = (
    (MAX_RELATIONS, re.compile(r"[<>=]|\\(?:le|ge|ne|lt|gt|in|approx|subset|supset)(?![A-Za-z])")),
    (MAX_SETS, re.compile(r"\\(?:cup|cap|setminus)(?![A-Za-z])")),
    (MAX_CELLS, re.compile(r"&|\\\\")),
    (MAX_BARS, re.compile(r"\||\\(?:vert|Vert|mid)(?![A-Za-z])")),
)
_COMPUTATION = re.compile(
    r"\\(sum|prod|i+nt|oint|lim|det|xrightarrow)(?![A-Za-z])|\\begin\s?\{\s?(vmatrix)|\\operatorname\s?\{\s?("
    r"eye|zeros|ones|diag|rank|tr|trace|rref|nullspace|norm|cols|rows|eig\w*|diagonalize|svd|SVD|[hv]stack|orth\w*)"
)


def computations(text: str) -> frozenset[str]:
    r"""Return the computations in an expression: sums, products, integrals, limits, determinants.

    Their size does not bound their cost, and `\sum_{n=1}^{100} n` restates a problem instead of answering it, so they
    are compared only with a gold that has them too.
    """
    return frozenset(next(filter(None, match.groups())) for match in _COMPUTATION.finditer(text))


def is_too_large(text: str) -> bool:
    """Return whether a cleaned answer exceeds the bounds."""
    depths = accumulate((char in "([{") - (char in ")]}") for char in text)
    if len(text) > MAX_CHARS or max(depths, default=0) > MAX_DEPTH:
        return True
    if any(sum(1 for _ in pattern.finditer(text)) > most for most, pattern in _COUNTED):
        return True
    try:
        _Estimator(text).whole()
    except _TooLargeError:
        return True
    return False


_FLOAT_BITS = 1000
"""Larger powers of two overflow a float."""
MAX_NESTING = 2 * MAX_DEPTH
"""Nesting of brackets, exponents, roots and functions, each about seven Python frames here."""


class _TooLargeError(Exception):
    """A part of the expression exceeds a bound."""


@dataclass(frozen=True, slots=True)
class _Size:
    """Upper bounds of one part of an expression, with the arithmetic of such bounds.

    Attributes:
        value: The approximate value; with variables, the sum of the absolute values of the coefficients.
        bits: Digits of all numbers together, in base 2.
        terms: Terms when multiplied out.
        degree: Degree of the polynomial.
        tower: Nesting of exponents and roots.
        is_symbolic: Whether it holds a variable.
    """

    value: float
    bits: float = 1.0
    terms: float = 1.0
    degree: float = 0.0
    tower: int = 0
    is_symbolic: bool = False

    def plus(self, other: _Size, sign: float = 1.0) -> _Size:
        is_symbolic = self.is_symbolic or other.is_symbolic
        value = abs(self.value) + abs(other.value) if is_symbolic else self.value + sign * other.value
        return self._joined(other, _known(value), self.terms + other.terms, max(self.degree, other.degree))

    def times(self, other: _Size) -> _Size:
        value = _known(self.value * other.value)
        return self._joined(other, value, self.terms * other.terms, self.degree + other.degree)

    def over(self, other: _Size) -> _Size:
        return replace(self.times(other), value=_quotient(self.value, other.value))

    def _joined(self, other: _Size, value: float, terms: float, degree: float) -> _Size:
        bits, tower = self.bits + other.bits, max(self.tower, other.tower)
        return _Size(value, bits, terms, degree, tower, self.is_symbolic or other.is_symbolic)

    def power(self, exponent: _Size) -> _Size:
        times = max(abs(exponent.value), 1.0)
        try:
            value = _known(abs(self.value) ** exponent.value)
        except (OverflowError, ZeroDivisionError):
            value = math.inf
        bits, tower = max(self.bits, 1.0) * times + exponent.bits, max(self.tower, exponent.tower + 1)
        terms = _binomial(times + self.terms - 1, self.terms - 1) if self.terms > 1 else self.terms
        degree = self.degree * times if exponent.value.is_integer() else math.inf
        return _Size(value, bits, terms, degree, tower, self.is_symbolic or exponent.is_symbolic)

    def factorial(self) -> _Size:
        bits = _log2_factorial(self.value)
        return replace(self, value=_power_of_two(bits), bits=max(bits, self.bits))

    def choose(self, other: _Size) -> _Size:
        r"""Return the size of `\binom{self}{other}`."""
        factors = min(abs(other.value), abs(_known(self.value - other.value)))
        bits = factors * max(self.bits, 1.0)
        tower = max(self.tower, other.tower)
        return _Size(_power_of_two(bits), bits, tower=tower, is_symbolic=self.is_symbolic or other.is_symbolic)


_NOTHING = _Size(0.0, 0.0, 0.0)
_VARIABLE = _Size(1.0, degree=1.0, is_symbolic=True)

_TOKEN = re.compile(
    r"(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE](?P<exponent>[-+]?[0-9]+))?)"
    r"|(?P<command>\\(?:[A-Za-z]+|.))|(?P<word>(?:sin|cos|tan|cot|sec|csc|log|ln|exp)(?![a-z]))|(?P<letter>[^\W\d_])"
    r"|(?P<mark>[-+*/^!()\[\]{}_])|(?P<break>[,;=<>&|:])",
    re.DOTALL,
)
_POLYNOMIAL = re.compile(r"(?:[^\W_]|[\s.,;=<>+*/^!(){}\[\]-]|\\frac(?![A-Za-z]))+")
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_FUNCTIONS: dict[str, Callable[[float], float]] = {
    "sin": lambda _: 1.0,
    "cos": lambda _: 1.0,
    "arctan": lambda _: 2.0,
    "log": lambda value: abs(math.log(abs(value))) if value else 0.0,
    "ln": lambda value: abs(math.log(abs(value))) if value else 0.0,
    "exp": math.exp,
}
_OTHER_FUNCTIONS = frozenset((
    "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "arcsin", "arccos", "gcd", "lcm", "max", "min", "operatorname",
))  # fmt: skip
_BINOMIALS = frozenset(("\\binom", "\\dbinom", "\\tbinom"))


class _Estimator:
    """Recursive descent over the tokens of a formula; unknown commands count as variables."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_TOKEN.finditer(text))
        self._position = 0
        self._functions = 0
        self._depth = 0
        # A polynomial of degree d in n letters has at most as many terms as there are monomials; functions, roots and
        # subscripts would be further letters.
        letters = len({match[0] for match in self._tokens if match["letter"]})
        self._variables = letters if _POLYNOMIAL.fullmatch(text) else math.inf

    def whole(self) -> None:
        total = _NOTHING
        while self._position < len(self._tokens):
            total = self._checked(total.plus(self._sum()))
            self._position += 1  # a bracket that nothing opened

    def _peek(self) -> str:
        return self._tokens[self._position][0] if self._position < len(self._tokens) else ""

    def _take(self, *marks: str) -> str:
        token = self._peek()
        if token not in marks:
            return ""
        self._position += 1
        return token

    def _checked(self, size: _Size) -> _Size:
        terms = size.terms
        if self._variables < math.inf:
            terms = min(terms, _binomial(size.degree + self._variables, self._variables))
        if size.bits > MAX_BITS or terms > MAX_TERMS or size.tower > MAX_TOWER or self._functions > MAX_FUNCTIONS:
            raise _TooLargeError
        return replace(size, terms=terms)

    def _sum(self) -> _Size:
        """Everything up to a closing bracket; items of a list and sides of an equation add up like terms."""
        total, sign = _NOTHING, 1.0
        while (token := self._peek()) and token not in (")", "]", "}"):
            if token in ("+", "-") or self._tokens[self._position]["break"]:
                self._position += 1
                sign = -1.0 if token == "-" else 1.0
            else:
                total = self._checked(total.plus(self._product(), sign))
                sign = 1.0
        return total

    def _product(self) -> _Size:
        size = self._power()
        while (token := self._peek()) and token not in (")", "]", "}", "+", "-"):
            if self._tokens[self._position]["break"]:
                break
            if self._take("/"):
                size = self._checked(size.over(self._power()))
            else:
                self._take("*")
                size = self._checked(size.times(self._power()))
        return size

    def _power(self) -> _Size:
        while self._take("+", "-"):
            pass
        size = self._factorials(self._atom())
        while mark := self._take("^", "_"):
            if mark == "^":
                size = self._checked(size.power(self._nested(self._power)))
            else:
                self._atom()
            size = self._factorials(size)
        return size

    def _nested(self, read: Callable[[], _Size]) -> _Size:
        """Read one level deeper: an atom, or an exponent, `9^9^9` from the right."""
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise _TooLargeError
        size = read()
        self._depth -= 1
        return size

    def _factorials(self, size: _Size) -> _Size:
        while self._take("!"):
            size = self._checked(size.factorial())
        return size

    def _atom(self) -> _Size:
        if self._peek() in ("", ")", "]", "}"):
            return _NOTHING
        return self._nested(self._one_atom)

    def _one_atom(self) -> _Size:
        match = self._tokens[self._position]
        self._position += 1
        if match["number"]:
            return self._number(match)
        if match["letter"]:
            return _Size(math.e, 2.0) if match[0] == "e" else _VARIABLE
        if match["command"] or match["word"]:
            return self._command(match[0])
        return self._closed(match[0]) if match[0] in _CLOSING else _Size(1.0, 0.0)

    def _closed(self, opening: str) -> _Size:
        size = self._sum()
        # Brackets that do not match, as in `[0, 1)`, close the open one.
        self._take(_CLOSING[opening], ")", "]", "}")
        return size

    def _number(self, match: re.Match[str]) -> _Size:
        text = match["number"]
        exponent = (match["exponent"] or "0").lstrip("+-0") or "0"
        if len(text) > MAX_DIGITS or len(exponent) > len(str(MAX_BITS)):
            raise _TooLargeError
        return self._checked(_Size(float(text), math.log2(10) * (len(text) + int(exponent))))

    def _command(self, command: str) -> _Size:
        name = command.lstrip("\\")
        if command in ("\\frac", "\\cfrac", "\\dfrac", "\\tfrac"):
            top = self._atom()
            return self._checked(top.over(self._atom()))
        if command == "\\sqrt":
            degree = self._closed("[") if self._take("[") else _Size(2.0)
            base = self._atom()
            root = self._checked(base.power(_Size(_quotient(1.0, degree.value), degree.bits)))
            return self._checked(replace(root, tower=base.tower + 1))
        if command in _BINOMIALS:
            top = self._atom()
            return self._checked(top.choose(self._atom()))
        if command in ("\\Gamma", "\\gamma") and self._peek() == "(":
            return self._checked(self._atom().factorial())
        if name in _FUNCTIONS or name in _OTHER_FUNCTIONS:
            return self._function(name)
        # Greek letters are variables; counting spaces, fonts and delimiters as such does no harm.
        return _Size(math.pi, 2.0) if command == "\\pi" else _VARIABLE

    def _function(self, name: str) -> _Size:
        self._functions += 1
        while self._take("^", "_"):
            self._atom()
        if name == "operatorname" and self._take("{"):
            self._closed("{")
        argument = self._power()
        try:
            # The value of an unknown function can be any number.
            value = _FUNCTIONS[name](argument.value) if name in _FUNCTIONS else argument.value
        except OverflowError:
            value = math.inf
        if name not in _FUNCTIONS and not argument.is_symbolic:
            value = math.inf
        # e^n is a number of n·log2(e) bits.
        bits = argument.bits + (abs(argument.value) * math.log2(math.e) if name == "exp" else 0.0)
        return self._checked(_Size(value, bits, 1.0, math.inf, argument.tower, argument.is_symbolic))


def _known(value: float) -> float:
    """Infinite minus infinite may be any number."""
    return math.inf if math.isnan(value) else value


def _quotient(top: float, bottom: float) -> float:
    return _known(top / bottom) if bottom else math.inf


def _power_of_two(exponent: float) -> float:
    return 2.0**exponent if exponent < _FLOAT_BITS else math.inf


def _log2_factorial(value: float) -> float:
    try:
        return math.lgamma(abs(value) + 1) / math.log(2)
    except OverflowError:
        return math.inf


def _binomial(top: float, bottom: float) -> float:
    """Binomial coefficient, in floating point."""
    try:
        return math.exp(math.lgamma(top + 1) - math.lgamma(bottom + 1) - math.lgamma(top - bottom + 1))
    except (OverflowError, ValueError):
        return math.inf
