"""Reads a short answer from untrusted text: one whole line of bounded length."""

from __future__ import annotations

import re

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
