"""`math.countdown`: reach a target from given numbers with + - * /, each number at most once."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from operator import add, mul, sub, truediv
from random import Random

from pydantic import Field

from grpo_sdk import Invalid, Row, Task, reward
from grpo_sdk.data import ProceduralConfig, procedural
from grpo_tasks_math.parsing import computed, first_line, one_integer

TARGETS = range(10, 1000)

CLOSE = 10
"""Distance from the target from which on closeness earns nothing."""

LARGE = (25, 50, 75, 100)
"""The large numbers of the television game; the others are drawn from 1 to a level's limit."""

LEVELS = {1: (3, 20, 0, "+-"), 2: (4, 20, 0, "+-*/"), 3: (5, 10, 1, "+-*/"), 4: (6, 10, 2, "+-*/")}
"""Level -> number of numbers, largest small number, number of large numbers, operators."""


class CountdownConfig(ProceduralConfig):
    """Options of `math.countdown`.

    Attributes:
        min_difficulty: Easiest level: 1 three numbers with + and -, 2 four with + - * /, 3 five, 4 six.
        max_difficulty: Hardest level.
    """

    min_difficulty: int = Field(default=1, ge=1, le=4)
    max_difficulty: int = Field(default=3, ge=1, le=4)


class CountdownRow(Row):
    """Numbers and a target; gold is one of the solutions.

    Attributes:
        numbers: Numbers to use, each at most once.
        target: Number to reach.
    """

    numbers: tuple[int, ...]
    target: int


def load(config: CountdownConfig) -> Iterator[CountdownRow]:
    """Numbers to combine into a target; every row has a solution."""
    return procedural(config, _make, content=content)


def _make(random: Random, level: int) -> CountdownRow:
    count, limit, large, operators = LEVELS[level]
    while True:
        numbers = [*random.sample(LARGE, large), *(random.randint(1, limit) for _ in range(count - large))]
        random.shuffle(numbers)
        target, solution = _combine(random, numbers, operators)
        if target in TARGETS and target not in numbers:
            return CountdownRow(id="", numbers=tuple(numbers), target=target, gold=f" {solution}")


_Part = tuple[int, str, bool]
"""A value, its expression, and whether that is a sum, which needs parentheses inside a product."""


def _combine(random: Random, numbers: list[int], operators: str) -> tuple[int, str]:
    """Combine all numbers in a random order into one whole, positive value and its expression."""
    parts: list[_Part] = [(number, str(number), False) for number in numbers]
    while len(parts) > 1:
        random.shuffle(parts)
        left, right = max(parts[-2:]), min(parts[-2:])
        possible = [
            operator
            for operator in operators
            if not (operator == "-" and left[0] == right[0])
            and not (operator == "*" and (right[0] == 1 or left[0] * right[0] > TARGETS[-1]))
            and not (operator == "/" and (right[0] == 1 or left[0] % right[0]))
        ]
        parts[-2:] = [_joined(left, random.choice(possible), right)]
    value, text, _ = parts[0]
    return value, text


def _joined(left: _Part, operator: str, right: _Part) -> _Part:
    (a, left_text, left_is_sum), (b, right_text, right_is_sum) = left, right
    match operator:
        case "+":
            return a + b, f"{left_text} + {right_text}", True
        case "-":
            return a - b, f"{left_text} - {f'({right_text})' if right_is_sum else right_text}", True
    if left_is_sum:
        left_text = f"({left_text})"
    # After a division any compound divisor needs its parentheses: a / (b * c).
    if right_is_sum or (operator == "/" and " " in right_text):
        right_text = f"({right_text})"
    return (a * b if operator == "*" else a // b), f"{left_text} {operator} {right_text}", False


def content(row: CountdownRow) -> str:
    """What makes two rows the same problem: the order of the numbers does not matter."""
    return " ".join(map(str, [*sorted(row.numbers), row.target]))


def prompt(row: CountdownRow) -> str:
    """The rules, the numbers and the target."""
    return (
        f"Use the numbers {', '.join(map(str, row.numbers))} and + - * / to make {row.target}. "
        "Use each number at most once.\nExpression:"
    )


MAX_DEPTH = 16
"""Nested parentheses."""

MAX_NUMBERS, MAX_DIGITS = 16, 6
"""Numbers in one expression, and digits of each: a value has at most 96."""

_ALLOWED = re.compile(r"[-+*/() 0-9]*")
_LEADING_ZEROS = re.compile(r"(?<![0-9])0+(?=[0-9])")
_SPELLINGS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "[": "(", "]": ")"})
_OPERATIONS = {ast.Add: add, ast.Sub: sub, ast.Mult: mul, ast.Div: truediv}


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
        Invalid: the text is no expression, divides by zero, or exceeds `MAX_NUMBERS`, `MAX_DIGITS` or `MAX_DEPTH`.
    """
    plain = " ".join(text.translate(_SPELLINGS).split())
    rest = _ALLOWED.sub("", plain, count=1)
    if rest:
        raise Invalid(f"not an expression from {rest[:10]!r}")
    numbers = re.findall("[0-9]+", plain)
    if len(numbers) > MAX_NUMBERS:
        raise Invalid(f"an expression of more than {MAX_NUMBERS} numbers")
    if any(len(number) > MAX_DIGITS for number in numbers):
        raise Invalid(f"a number of more than {MAX_DIGITS} digits")
    if max(accumulate((char == "(") - (char == ")") for char in plain), default=0) > MAX_DEPTH:
        raise Invalid(f"parentheses nested more than {MAX_DEPTH} deep")
    try:
        tree = ast.parse(_LEADING_ZEROS.sub("", plain), mode="eval")
        return Expression(computed(tree.body, _OPERATIONS), tuple(map(int, numbers)))
    except SyntaxError:
        raise Invalid(f"not an expression: {plain[:40]!r}") from None
    except ZeroDivisionError:
        raise Invalid("a division by zero") from None
    except ValueError as error:
        raise Invalid(f"{str(error)[:40]!r} is not a number, sum, difference, product or quotient") from None


def validate(text: str) -> Expression:
    """Parse one expression on the first line; "= value" after it must be true."""
    line, equals, claim = first_line(text).partition("=")
    expression = parse_expression(line.removesuffix("."))
    if equals and one_integer(claim) != expression.value:
        raise Invalid("the expression is not what it is said to equal")
    return expression


@reward(0.1)
def expression(answer: Expression) -> float:
    """1: an expression was given."""
    return 1.0


@reward(0.1)
def given_numbers(answer: Expression, row: CountdownRow) -> float:
    """1 when every number in the expression is a given one, each used at most once."""
    return float(Counter(answer.numbers) <= Counter(row.numbers))


@reward(0.2, needs="given_numbers")
def close(answer: Expression, row: CountdownRow) -> float:
    """1 − |value − target| / 10, at least 0."""
    return max(0.0, 1.0 - float(abs(answer.value - row.target)) / CLOSE)


@reward(0.6, needs="given_numbers")
def exact(answer: Expression, row: CountdownRow) -> float:
    """1 when the value is the target."""
    return float(answer.value == row.target)


TASK = Task(
    "countdown",
    load,
    prompt,
    validate,
    (expression, given_numbers, close, exact),
    config=CountdownConfig,
    row=CountdownRow,
    stop=("\n",),
    max_completion_length=64,  # six numbers, five operators, parentheses and spaces, a token per character
    on_timeout="fail",
)
"""Value: 1.0 exact; 0.2 with the given numbers, rising to 0.38 one off; 0.1 with others; 0.0 no expression."""
