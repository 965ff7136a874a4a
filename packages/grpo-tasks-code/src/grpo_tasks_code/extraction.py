"""The program in a completion: the first python block of the answer, else the whole text; the script: a bash block."""

from __future__ import annotations

import re

from grpo_core import Invalid

MAX_PROGRAM_CHARS = 65_536
"""Longer programs are refused: this is over ten times the longest solution of MBPP or HumanEval."""

FENCE = "```"
END_OF_THINKING = "</think>"

_OPENING = re.compile(r"(?<!`)(?P<fence>`{3,}+)(?:python3?|py)(?![\w.+#-])[^\S\n]*\n?", re.IGNORECASE)
_SHELL_OPENING = re.compile(r"(?<!`)(?P<fence>`{3,}+)(?:bash|shell|sh)(?![\w.+#-])[^\S\n]*\n?", re.IGNORECASE)
_BACKTICKS = re.compile("`+")


def block_of(program: str, language: str = "python") -> str:
    """Return a program as a block, ```python by default, with a fence that is longer than any in the program."""
    longest = max((len(run) for run in _BACKTICKS.findall(program)), default=0)
    fence = "`" * max(len(FENCE), longest + 1)
    return f"{fence}{language}\n{program}\n{fence}"


def program_of(completion: str) -> str:
    """Return the first ```python block of a completion, else the whole completion.

    A block behind the last `</think>` comes first: one before it is a draft, which counts only if there is no other. A
    block ends at the next fence with as many backticks as it begins with, or at the end of the text: a completion that
    was cut, or ended at a stop string, has no closing fence. ```py and ```python3 count as python; other blocks do not,
    nor does one without a language.

    Raises:
        Invalid: the program is blank, or longer than `MAX_PROGRAM_CHARS`.
    """
    program = _first_block(completion, _OPENING)
    return _bounded(completion if program is None else program, "program")


def script_of(completion: str) -> str:
    """Return the first ```bash block of a completion, as in `program_of`. ```sh and ```shell count too.

    Raises:
        Invalid: there is none, or it is blank, holds a null character, or is longer than `MAX_PROGRAM_CHARS`.
    """
    script = _bounded(_first_block(completion, _SHELL_OPENING) or "", "```bash block")
    if "\0" in script:
        raise Invalid("a null character in the script")
    return script


def _first_block(completion: str, opening: re.Pattern[str]) -> str | None:
    opened = opening.search(completion, completion.rfind(END_OF_THINKING) + 1) or opening.search(completion)
    if opened is None:
        return None
    closed = completion.find(opened["fence"], opened.end())
    return completion[opened.end() : None if closed < 0 else closed]


def _bounded(code: str, kind: str) -> str:
    if not code.strip():
        raise Invalid(f"no {kind}")
    if len(code) > MAX_PROGRAM_CHARS:
        raise Invalid(f"a {kind} of more than {MAX_PROGRAM_CHARS} characters")
    return code
