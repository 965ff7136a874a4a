"""Breaks a working program in one place, with beginners' mistakes."""

from __future__ import annotations

import re
from random import Random


def break_program(random: Random, source: str) -> str:
    """Return a program that does not run with output: it has a syntax error, fails at run time, or prints nothing.

    Args:
        random: The only source of randomness.
        source: Program that ends in `print(…)`.
    """
    while True:
        broken = random.choice(FAULTS)(random, source)
        if broken != source:
            return broken


def _no_bracket(random: Random, source: str) -> str:
    return source.removesuffix(")")


def _no_colon(random: Random, source: str) -> str:
    return source.replace(":\n", "\n", 1)


def _no_indent(random: Random, source: str) -> str:
    return re.sub(r"\n +", "\n", source, count=1)


def _no_operand(random: Random, source: str) -> str:
    return re.sub(r"( [+*-]) \w+\)$", r"\1)", source)


def _misspelt(random: Random, source: str) -> str:
    head, mark, tail = source.rpartition("print(")
    return head + random.choice(("pint(", "prin(", "pritn(", "primt(")) + tail if mark else source


def _undefined(random: Random, source: str) -> str:
    head, mark, tail = source.rpartition("print(")
    return f"{head}{mark}{random.choice('pqvw')} + {tail}" if mark else source


def _text_and_number(random: Random, source: str) -> str:
    head, mark, tail = source.rpartition("print(")
    return f'{head}{mark}"{random.choice(("is", "sum", "x"))}" + 1 + {tail}' if mark else source


def _by_zero(random: Random, source: str) -> str:
    return re.sub(r"\)$", " // 0)", source)


def _silent(random: Random, source: str) -> str:
    head, mark, tail = source.rpartition("print(")
    return f"{head}r = ({tail}" if mark else source


FAULTS = (
    *(_no_bracket, _no_colon, _no_indent, _no_operand),
    *(_misspelt, _undefined, _text_and_number, _by_zero, _silent),
)
"""Each returns the source unchanged where it does not apply."""
