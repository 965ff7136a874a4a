"""The program in a completion: the first python block, else the whole text."""

from __future__ import annotations

import re

from grpo_core import Invalid

MAX_PROGRAM_CHARS = 65_536
"""Longer programs are refused: this is over ten times the longest solution of MBPP or HumanEval."""

FENCE = "```"

_OPENING = re.compile(r"(?<!`)(?P<fence>`{3,}+)(?:python3?|py)(?![\w.+#-])[^\S\n]*\n?", re.IGNORECASE)
_BACKTICKS = re.compile("`+")


def block_of(program: str) -> str:
    """Return a program as a ```python block, with a fence that is longer than any in the program."""
    longest = max((len(run) for run in _BACKTICKS.findall(program)), default=0)
    fence = "`" * max(len(FENCE), longest + 1)
    return f"{fence}python\n{program}\n{fence}"


def program_of(completion: str) -> str:
    """Return the first ```python block of a completion, else the whole completion.

    A block ends at the next fence with as many backticks as it begins with, or at the end of the text: a completion
    that was cut, or ended at a stop string, has no closing fence. ```py and ```python3 count as python; other blocks
    do not, nor does one without a language.

    Raises:
        Invalid: the program is blank, or longer than `MAX_PROGRAM_CHARS`.
    """
    opened = _OPENING.search(completion)
    if opened is None:
        program = completion
    else:
        closed = completion.find(opened["fence"], opened.end())
        program = completion[opened.end() : None if closed < 0 else closed]
    if not program.strip():
        raise Invalid("no program")
    if len(program) > MAX_PROGRAM_CHARS:
        raise Invalid(f"a program of more than {MAX_PROGRAM_CHARS} characters")
    return program
