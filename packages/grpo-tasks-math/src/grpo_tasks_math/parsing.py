"""Reading a short answer from untrusted text: one line, bounded, whole or not at all."""

from __future__ import annotations

import re

from grpo_core import Invalid

MAX_ANSWER_CHARS = 200
"""A one-line answer that is longer is refused unread; the longest right one of any task here is far below."""

_INTEGER = re.compile(r"([+\-\N{MINUS SIGN}]?)([0-9]{1,15})\.?")  # 15 digits: above every result, below int()'s limit


def first_line(text: str) -> str:
    """The first line, stripped: trainers without stop strings go on writing after it.

    Raises:
        Invalid: it is empty or longer than `MAX_ANSWER_CHARS`.
    """
    line = text[: MAX_ANSWER_CHARS + 1].partition("\n")[0].strip()
    if not line:
        raise Invalid("no answer on the first line")
    if len(line) > MAX_ANSWER_CHARS:
        raise Invalid(f"an answer of more than {MAX_ANSWER_CHARS} characters")
    return line


def one_integer(text: str) -> int:
    """The one integer that the first line consists of; a final full stop is allowed.

    "12 or 13", "40, 41, 42", "95 apples" and "095e1" are no answers.

    Raises:
        Invalid: the line is anything else.
    """
    match = _INTEGER.fullmatch(first_line(text))
    if match is None:
        raise Invalid("the line is not one integer")
    sign, digits = match.groups()
    return int(digits) if sign in ("", "+") else -int(digits)
