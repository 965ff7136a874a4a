"""Reads a short answer from untrusted text: one whole line of bounded length."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from grpo_sdk import Invalid

MAX_ANSWER_CHARS = 200
"""Longer one-line answers are refused; right answers of every task here are far shorter."""

_INTEGER = re.compile(r"([+\-\N{MINUS SIGN}]?)([0-9]{1,15})\.?")  # 15 digits: above every result, below int()'s limit


def first_line(text: str) -> str:
    """Return the first line, stripped; without stop strings a model writes more lines.

    Raises:
        Invalid: the line is empty or longer than `MAX_ANSWER_CHARS`.
    """
    line = text[: MAX_ANSWER_CHARS + 1].partition("\n")[0].strip()
    if not line:
        raise Invalid("no answer on the first line")
    if len(line) > MAX_ANSWER_CHARS:
        raise Invalid(f"an answer of more than {MAX_ANSWER_CHARS} characters")
    return line


def one_integer(text: str) -> int:
    """Return the integer that the first line consists of; a final full stop is allowed.

    "12 or 13", "40, 41, 42", "95 apples" and "095e1" are not answers.

    Raises:
        Invalid: the line is anything else.
    """
    match = _INTEGER.fullmatch(first_line(text))
    if match is None:
        raise Invalid("the line is not one integer")
    sign, digits = match.groups()
    return int(digits) if sign in ("", "+") else -int(digits)


def computed(node: ast.expr, operations: Mapping[Any, Callable[..., Any]]) -> Fraction:
    """Return the value of an expression of whole numbers.

    Args:
        node: Its syntax tree; whoever parses it bounds its depth.
        operations: Operators of Python -> functions of their operands.

    Raises:
        ValueError: a part of it is anything else; holds this part.
    """
    match node:
        case ast.Constant(value=int(number)):
            return Fraction(number)
        case ast.UnaryOp(op=op, operand=operand) if type(op) in operations:
            return Fraction(operations[type(op)](computed(operand, operations)))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in operations:
            return Fraction(operations[type(op)](computed(left, operations), computed(right, operations)))
    raise ValueError(ast.unparse(node))
