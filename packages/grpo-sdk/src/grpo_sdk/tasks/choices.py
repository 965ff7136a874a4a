"""The choice that an answer is, by its letter, its text or both."""

from __future__ import annotations

import re
from unicodedata import normalize

from grpo_sdk.task.marks import plain_latex

LETTERS = "ABCDEFGHIJ"

_MARKUP = re.compile(r"(?<![0-9] )\*|\*(?! [0-9])|[`$]|\\[()\[\]]|</?(?:strong|em|b|i|u|p|br)\s?/?>")
_DASHES = str.maketrans(dict.fromkeys("\u2010\u2011\u2012\u2013\u2212", "-"))
_SPACES = re.compile(r"(?:[^\S\n]|\\[ ,;:!])+")
_PUNCTUATION = " \n.,;:!…。\"'“”()[]"
_HEADED = re.compile(
    r"(?:(?:option|choice|answer|letter)\s)?[(\[]?([a-j])[)\].:\s-]{1,4}(.+)", re.IGNORECASE | re.DOTALL
)
_TAILED = re.compile(r"\A(.+?)\s?[(\[]([a-j])[)\]][.!]?\Z", re.IGNORECASE | re.DOTALL)
_LETTER = re.compile(
    r"(?:(?:option|choice|answer|letter)\s)?[(\[\"'“‘_]{0,2}([a-j])[)\]\"'”’_]{0,2}[.:!。]?", re.IGNORECASE
)
_REASON = re.compile(r"[,;]?\s(?:because|since|as)\s.*", re.IGNORECASE | re.DOTALL)


def choice_of(answer: str, choices: tuple[str, ...]) -> str | None:
    """The letter of the choice that an answer is; None where it is none, or says more than one.

    An answer is the letter, the text of the choice, or the letter with its own text; a reason may stand behind it.
    """
    for text in (answer, _REASON.sub("", answer)):
        if (letter := letter_of(text, choices)) is not None:
            return letter
    return None


def letter_of(text: str, choices: tuple[str, ...]) -> str | None:
    """The letter of the choice that a text is, by its text as it is, its letter, its text in other case, or both."""
    plain = _plain(text)
    alone = None if text.strip() in choices else _LETTER.fullmatch(plain)
    if alone and alone[1].upper() in LETTERS[: len(choices) or None]:
        return alone[1].upper()
    for spelled in (str.strip, folded, _bare):  # case tells AA, Aa and aa apart
        wanted = spelled(text)
        for letter, choice in zip(LETTERS, choices, strict=False):
            if wanted and spelled(choice) == wanted:
                return letter
    headed = _HEADED.fullmatch(_TAILED.sub(r"\2) \1", plain))
    if headed and (place := LETTERS.index(headed[1].upper())) < len(choices):
        return LETTERS[place] if _bare(headed[2]) == _bare(choices[place]) else None
    return None


def folded(text: str) -> str:
    """The text without differences of case, white space and composed characters."""
    return " ".join(normalize("NFC", text).translate(_DASHES).split()).casefold()


def _plain(text: str) -> str:
    """The text without emphasis and mathematical delimiters."""
    return _SPACES.sub(" ", _MARKUP.sub("", plain_latex(normalize("NFC", text).translate(_DASHES)))).strip()


def _bare(text: str) -> str:
    return folded(_plain(text)).strip(_PUNCTUATION)
