"""Numbers as models write them."""

from __future__ import annotations

import re
from fractions import Fraction
from unicodedata import normalize

from grpo_core.tasks.answers import plain_latex

MAX_NUMBER_CHARS = 400
MAX_SCALE = 1000
"""Largest power of ten that a number is multiplied with."""
MAX_POWER_CHARS = 10_000
"""Digits of a base times the exponent, up to which a power is computed."""

_DIGITS = r"[0-9]{1,300}+"
_WHOLE = (
    # 1 000 000, but not the last two of 1 2 300, nor the first two of 3 100/200
    r"(?:(?<![0-9][ ])[1-9][0-9]{0,2}(?:[ ][0-9]{3}){1,99}+(?![0-9])(?![ ]?/)"
    rf"|[0-9]{{1,3}}(?:,[0-9]{{3}})+(?![0-9])|{_DIGITS})"
)
_RAISED = r"[ ]?(?:\\?\^|\*\*|[ ]\*\*)[ ]?"


def _exponent(name: str) -> str:
    """A whole exponent, in braces, parentheses or none."""
    wrap = f"{name}_wrap"
    return rf"{_RAISED}(?P<{wrap}>[{{(][ ]?)?(?P<{name}>[-+]?[0-9]{{1,9}}+)(?({wrap})[ ]?[)}}]|(?!\.?[0-9]))"


_TOKEN = re.compile(
    # An exponent or index of a unit or a name is no number of its own; `is**25 cm**` is bold.
    r"(?:\^[ ]?|_)(?:\{[^{}]{0,60}\}|\([^()]{0,60}\)|[-+]?[0-9.]{1,300}+)"
    r"|(?<=[0-9A-Za-z)])\*\*[-+]?[0-9]{1,9}+(?!\.?[0-9]|[^\n*]{0,60}\*\*)"
    rf"|(?<![\w.])(?P<sign>[-+])?(?=\.?[0-9])(?P<digits>{_WHOLE}?(?:\.{_DIGITS})?)"
    rf"(?:[ ]{{1,4}}(?P<top>[1-9][0-9]{{0,299}}+)[ ]?/[ ]?(?P<under>{_DIGITS})(?!\.?[0-9])"
    rf"|[ ]?/[ ]?(?P<below>[-+]?{_WHOLE}(?:\.{_DIGITS})?)(?![0-9])"
    r"|[ ]?[eE](?P<ten>[-+]?[0-9]{1,9}+))?"
    rf"(?:{_exponent('power')})?"
    rf"(?:[ ]{{0,4}}(?:\\times|\\cdot|[xX*\u00d7\u00b7\u22c5\u2219])[ ]{{0,4}}10{_exponent('tens')})?"
    # An exponent that is not read: x, a sum, a tower, or one of (-2)^2; ^o is a degree.
    r"(?P<open>(?=[ ]?\)?[ ]?\\?(?:\^|\*\*(?=[0-9]))[ ]?[{(]?[ ]?-?(?:[A-NP-Za-np-z](?![A-Za-z])|[0-9])))?"
    r"(?P<scales>(?:[ -]{0,3}(?i:hundred|thousand|million|billion|trillion)s?\b){1,3})?"
    r"(?P<percent>[ ]{0,2}%|[ -](?i:per[ ]?cent)\b)?"
)
_SCALE = re.compile("hundred|thousand|million|billion|trillion", re.IGNORECASE)
_SCALES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}

_SPELLINGS = str.maketrans(
    dict.fromkeys("\u2010\u2011\u2012\u2013\u2212\ufe63\uff0d", "-")
    | dict.fromkeys("\t\u00a0\u2007\u2009\u202f", " ")
    | dict(zip("０１２３４５６７８９．／％\u2044", "0123456789./%/", strict=True))
)
_GROUPING = re.compile(r"(?<=[0-9])(?:\\[,;: ]|,\\!|~)(?=[0-9]{3})")
_LATEX_SPACE = re.compile(r"\\[,;:! ]|~")
_MARKS = set(" \n$€£¥₹\\()[]{}*.\"'`")

_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-")
_RAISED_TEXT = re.compile(r"<sup>([-+]?[0-9]{1,9})</sup>|([⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻]{1,64}+)")
_PART = r"\s?(?:\{\s?(-?[0-9][0-9.,]{0,299})\s?\}|([0-9]))"
_FRACTION = re.compile(rf"([0-9][ ]?)?\\[dtc]?frac{_PART}{_PART}")
_VULGAR_FRACTION = re.compile(r"([0-9][ ]?)?([¼½¾⅐-⅞])")
_AFTER = r"(?=\\?[$€£¥₹]?\.?[0-9])"
_WORDED_SIGN = re.compile(
    # Behind another word, such as a unit, "minus" subtracts.
    r"(?:(?<!\w)(?<![0-9)]\s)negative|(?P<before>^|[\n=:#>(]|\b(?:is|are|was|were|be|equals?|to|of|at|or|and)\s)"
    rf"(?P<space>[\s$*]{{0,4}})minus)\s{{1,4}}{_AFTER}",
    re.IGNORECASE,
)
_SPACED_SIGN = re.compile(
    # At the beginning of another line than the first, a dash is a bullet.
    r"(?P<before>^|[=:#>(≈]|\b(?:is|are|was|were|be|equals?)\b)(?P<space>[ $*({\\]{0,4})(?P<sign>[-+])"
    rf"[ ]{{1,4}}{_AFTER}",
    re.IGNORECASE,
)
_SIGNED_CURRENCY = re.compile(r"(?<![\w.])([-+])\\?[$€£¥₹]\s?(?=\.?[0-9])")


def read_number(text: str) -> Fraction | None:
    r"""The last number of a text; None where there is none, or where it is too large or its exponent no whole number.

    Forms: 1,234.5, 1 234.5, -3, 2e-3, 3/4, \frac{3}{4}, 2 3/4, 12%, 12 percent, 2^10, 1.5 \times 10^5, 1.5 million.
    """
    last = _last_number(text)
    return None if last is None else _value(last)


def one_number(text: str) -> tuple[Fraction, bool] | None:
    """The number that a text is, with a unit behind it or none, and whether it is a percentage; None for anything else.

    One explanation may follow in parentheses, or behind a comma and since or because.
    """
    number = _last_number(_EXPLANATION.sub("", text))
    if number is None or (value := _value(number)) is None:
        return None
    before, behind = number.string[: number.start()], number.string[number.end() :]
    is_one = set(before) <= _MARKS | set("=~≈") and (not set(behind) - _MARKS or _is_unit(behind))
    return (value, number["percent"] is not None) if is_one else None


def _last_number(text: str) -> re.Match[str] | None:
    last = None
    for match in _TOKEN.finditer(_plain_numbers(text)):
        if match["digits"]:
            last = match
    return last


_EXPLANATION = re.compile(
    r"(?:\s\((?=[^()]*[^\W\d_]{2})[^()]{1,200}\)|,\s?(?:since|because)\b.{0,2000})\s*\.?\s*$", re.DOTALL
)
_UNIT = re.compile(
    r"(?:[^\W\d_]|[\s/°.,*$€£¥₹()\[\]{}'\"`\\~-]|\^\s?\{?\s?(?:-?[123]|\\circ|\\degree)\s?\}?|\*\*[23]|[²³])*"
)
_WORD = re.compile(r"(?<!\\)[^\W\d_]+")
_TOUCHING = frozenset(("m", "cm", "mm", "km", "g", "kg", "mg", "l", "ml", "ft", "in", "s", "min", "h", "hr", "mph"))
_CHANGING = frozenset((
    "and", "or", "plus", "minus", "times", "to", "not", "k", "dozen", "squared", "cubed", "factorial", "half", "halves",
    "third", "thirds", "pi", "e", "x", "y", "n", "maybe",
))  # fmt: skip
"""Words behind a number that make another number of it, or none."""
_MAX_WORDS = 8


def _is_unit(behind: str) -> bool:
    """Whether what follows a number is its unit, or another noun."""
    words = _WORD.findall(behind)
    if _UNIT.fullmatch(behind) is None or len(words) > _MAX_WORDS:
        return False
    if not words:
        return "°" in behind or "circ" in behind
    is_touching = behind[0].isalpha()
    return not any(word.lower() in _CHANGING or word.lower().endswith("ths") for word in words) and (
        words[0] in _TOUCHING if is_touching else True
    )


def is_number(text: str) -> bool:
    """Whether a text is one number, and beside it nothing but what marks an amount, a formula or an end."""
    last = _last_number(text)
    return last is not None and not set(last.string[: last.start()] + last.string[last.end() :]) - _MARKS


def _value(number: re.Match[str]) -> Fraction | None:
    """The value of a match of `_TOKEN`, with bounds on what is computed."""
    digits, top, power = number["digits"], number["top"], int(number["power"] or 1)
    scales = [_SCALES[word.lower()] for word in _SCALE.findall(number["scales"] or "")]
    scale = int(number["ten"] or 0) + int(number["tens"] or 0) + sum(scales)
    has_more_digits = number.string[number.end() : number.end() + 1].isdigit()
    is_too_large = len(digits) > MAX_NUMBER_CHARS or abs(scale) > MAX_SCALE
    if has_more_digits or is_too_large or number["open"] is not None or (top and number["power"]):
        return None
    base = number["below"] or digits
    if len(base) * abs(power) > MAX_POWER_CHARS:
        return None
    try:
        value = _decimal(digits)
        if top:
            part = Fraction(int(top), int(number["under"]))
            if "." in digits or part >= 1:
                return part  # of two numbers the last
            value += part
        elif number["below"]:
            value /= _decimal(base) ** power
        else:
            value **= power
    except (ValueError, ZeroDivisionError):
        return None
    signs = -1 if number["sign"] == "-" else 1
    return value * signs * Fraction(10) ** scale / (100 if number["percent"] else 1)


def _decimal(text: str) -> Fraction:
    return Fraction(text.replace(",", "").replace(" ", ""))


def _plain_numbers(text: str) -> str:
    """Spell signs, fractions, powers, grouped digits and percent signs in one way, and put a sign before its digits."""
    text = text.translate(_SPELLINGS)
    if "\\" in text or "{" in text or "~" in text:
        text = _GROUPING.sub(",", plain_latex(text).replace("{,}", ",").replace("\\%", "%"))
        text = _FRACTION.sub(_spelled_fraction, _LATEX_SPACE.sub(" ", text))
    if "<" in text or not text.isascii():
        text = _RAISED_TEXT.sub(lambda run: f"^{{{run[1] or run[2].translate(_SUPERSCRIPTS)}}}", text)
        text = _VULGAR_FRACTION.sub(_spelled_fraction, text)
    lowered = text.lower()
    if "minus" in lowered or "negative" in lowered:
        text = _WORDED_SIGN.sub(lambda sign: f"{sign['before'] or ''}{sign['space'] or ''}-", text)
    text = _SPACED_SIGN.sub(r"\g<before>\g<space>\g<sign>", text)
    return _SIGNED_CURRENCY.sub(r"\1", text)


def _spelled_fraction(match: re.Match[str]) -> str:
    whole, *parts = match.groups()
    written = [part for part in parts if part]
    part = "/".join(written) if len(written) > 1 else normalize("NFKC", written[0]).replace("\u2044", "/")
    return f"{whole.strip()} {part}" if whole else part
