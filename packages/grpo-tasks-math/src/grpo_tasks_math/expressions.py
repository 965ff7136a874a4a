"""A bounded parser of arithmetic expressions from untrusted text: whole numbers, + - * / and parentheses, exact."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from grpo_sdk import Invalid

MAX_DEPTH = 16
"""Nested parentheses; the recursion needs two frames a level."""

MAX_NUMBERS = 16
"""Numbers in one expression; with six digits each, a value has at most 96."""

_TOKEN = re.compile(r"\s*(?:(?P<number>[0-9]{1,6})(?![0-9])|(?P<symbol>[-+*/()]))")
_SPELLINGS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "[": "(", "]": ")"})


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression.

    Attributes:
        value: Exact value.
        numbers: Numbers in it, from left to right.
    """

    value: Fraction
    numbers: tuple[int, ...]


def parse_expression(text: str) -> Expression:
    """Parse and evaluate one expression, with the usual precedence and without signs.

    Raises:
        Invalid: the text is no expression, divides by zero, or exceeds `MAX_NUMBERS` or `MAX_DEPTH`.
    """
    parser = _Parser(_tokens(text.translate(_SPELLINGS).rstrip()))
    value = parser.sum(depth=0)
    if parser.token is not None:
        raise Invalid(f"{parser.token!r} where the expression should end")
    return Expression(value, tuple(parser.numbers))


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise Invalid(f"not an expression from {text[position : position + 10]!r}")
        tokens.append(match["number"] or match["symbol"])
        position = match.end()
    if sum(token.isdigit() for token in tokens) > MAX_NUMBERS:
        raise Invalid(f"an expression of more than {MAX_NUMBERS} numbers")
    return tokens


class _Parser:
    """Recursive descent: sum := product (± product)*; product := factor (*/ factor)*; factor := number | (sum)."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = iter(tokens)
        self.numbers: list[int] = []
        self.token = next(self._tokens, None)

    def _take(self) -> str:
        if self.token is None:
            raise Invalid("the expression ends too early")
        taken, self.token = self.token, next(self._tokens, None)
        return taken

    def sum(self, depth: int) -> Fraction:
        value = self._product(depth)
        while self.token in ("+", "-"):
            value = value + self._product(depth) if self._take() == "+" else value - self._product(depth)
        return value

    def _product(self, depth: int) -> Fraction:
        value = self._factor(depth)
        while self.token in ("*", "/"):
            operator, factor = self._take(), self._factor(depth)
            if operator == "/" and factor == 0:
                raise Invalid("a division by zero")
            value = value * factor if operator == "*" else value / factor
        return value

    def _factor(self, depth: int) -> Fraction:
        token = self._take()
        if token.isdigit():
            self.numbers.append(int(token))
            return Fraction(int(token))
        if token != "(":
            raise Invalid(f"{token!r} where a number should be")
        if depth >= MAX_DEPTH:
            raise Invalid(f"parentheses nested more than {MAX_DEPTH} deep")
        value = self.sum(depth + 1)
        if self._take() != ")":
            raise Invalid("a parenthesis that is not closed")
        return value
