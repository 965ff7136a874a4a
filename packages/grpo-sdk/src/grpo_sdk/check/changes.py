"""Ways to make another answer of a right one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

from grpo_sdk.check.answers import NUMBER
from grpo_sdk.tasks.numbers import value_of

Change = Callable[[str], str | None]

LARGEST_NEAR = 16
"""Largest number that is changed by 0.9 or 1: more than 5%, which is above what a tolerance allows."""

CLOSED = 10
"""Different answers of a sample up to which they may be options, of which a first letter is a short form."""

_DIGITS = re.compile(r"[0-9]{2,}")


def _number(change: Callable[[str, Fraction], str | None]) -> Change:
    """A change of numbers, given as written and as a value; None for words, and where the value stays."""

    def changed(answer: str) -> str | None:
        value = value_of(answer) if NUMBER.fullmatch(answer) else None
        text = None if value is None else change(answer, value)
        return None if text is None or value_of(text) == value else text

    return changed


def _word(answer: str) -> str | None:
    return None if NUMBER.fullmatch(answer) else f"q{answer}q"


def _is_near(value: Fraction) -> bool:
    return value.denominator == 1 and abs(value) <= LARGEST_NEAR


OTHER_ANSWERS: Mapping[str, Change] = {
    "more digits": _number(lambda text, value: text + "97"),
    "more digits before": _number(lambda text, value: re.sub(r"(?=[0-9])", "97", text, count=1)),
    "the other sign": _number(lambda text, value: text[1:] if value < 0 else f"-{text}"),
    "an exponent": _number(lambda text, value: f"{text}e7"),
    "a denominator": _number(lambda text, value: f"{text}/7"),
    "decimals": _number(lambda text, value: f"{text}.9" if _is_near(value) and "." not in text else None),
    "zeros after it": _number(lambda text, value: None if "." in text else f"{text}00"),
    "its last digit repeated": _number(lambda text, value: text + text[-1] * 3),
    "a longer word around it": _word,
}
"""Name -> another answer, wrong whatever the task is."""


def _kept(answer: str, characters: Sequence[bool]) -> str:
    """An answer of the same length in which only some characters are kept."""
    others = ("q" if not character.isdigit() else "8" if character != "8" else "3" for character in answer)
    return "".join(old if is_kept else new for old, new, is_kept in zip(answer, others, characters, strict=True))


def _of_several(change: Change) -> Change:
    """A change of whole numbers of several digits, and of words of several letters, that gives another answer."""

    def changed(answer: str) -> str | None:
        if len(answer) < 2 or (NUMBER.fullmatch(answer) and not _DIGITS.fullmatch(answer)):
            return None
        text = change(answer)
        if not text or text.casefold() == answer.casefold():
            return None
        return None if text.isdecimal() and value_of(text) == value_of(answer) else text

    return changed


PARTS: Mapping[str, Change] = {
    "the first character": _of_several(lambda answer: answer[0]),
    "the last character": _of_several(lambda answer: answer[-1]),
    "the first half": _of_several(lambda answer: answer[: len(answer) // 2].strip()),
}
"""Name -> a part of an answer."""

NEAR_ANSWERS: Mapping[str, Change] = {
    "the first character, with another rest": _of_several(
        lambda answer: _kept(answer, [place == 0 for place in range(len(answer))])
    ),
    "the last character, with another start": _of_several(
        lambda answer: _kept(answer, [place == len(answer) - 1 for place in range(len(answer))])
    ),
    "the first half, with another rest": _of_several(
        lambda answer: _kept(answer, [2 * place < len(answer) for place in range(len(answer))])
    ),
    "its characters in another order": _of_several(lambda answer: answer[1:] + answer[0]),
    "one more": _number(lambda text, value: str(int(value) + 1) if _is_near(value) else None),
}
"""Name -> a wrong answer that has something in common with the right one; by chance, and in tasks with several right
answers, one of them may be right."""
