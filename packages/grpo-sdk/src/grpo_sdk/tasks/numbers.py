"""One number as models write it, with a unit behind it or none."""

from __future__ import annotations

import re
from fractions import Fraction
from unicodedata import normalize

from grpo_sdk.task.marks import plain_latex

MAX_NUMBER_CHARS = 400
MAX_SCALE = 1000
"""Largest power of ten that a number is multiplied with."""
MAX_POWER_CHARS = 10_000
"""Digits of a base times the exponent, up to which a power is computed."""

_DIGITS = r"[0-9]{1,300}+"
_WHOLE = (
    rf"(?:[1-9][0-9]{{0,2}}(?:[ ][0-9]{{3}}){{1,99}}+(?![0-9]|[ ]?/)|[0-9]{{1,3}}(?:,[0-9]{{3}})+(?![0-9])|{_DIGITS})"
)
_RAISED = r"[ ]?(?:\\?\^|\*\*|[ ]\*\*)[ ]?"
_EXPONENT = rf"{_RAISED}(?:\{{[ ]?([-+]?[0-9]{{1,9}}+)[ ]?\}}|\(([-+]?[0-9]{{1,9}}+)\)|([-+]?[0-9]{{1,9}}+))"
_SIGNS = r"[-+]|(?:minus|negative)\b"
_NUMBER = re.compile(
    rf"[\s*\"'`(\[{{\\$=~≈]*+(?P<sign>{_SIGNS})?[\s*\\$€£¥₹]*(?P<late>{_SIGNS})?[ ]?"
    rf"(?P<digits>{_WHOLE}(?:\.(?:{_DIGITS})?)?|\.{_DIGITS})"
    rf"(?:[ ]{{1,4}}(?P<top>[1-9][0-9]{{0,299}}+)[ ]?/[ ]?(?P<under>{_DIGITS})"
    rf"|[ ]?/[ ]?(?P<below>[-+]?{_WHOLE}(?:\.{_DIGITS})?)"
    r"|[ ]?[eE](?P<ten>[-+]?[0-9]{1,9}+))?"
    rf"(?P<power>{_EXPONENT})?"
    rf"(?P<tens>[ ]{{0,4}}(?:\\times|\\cdot|[xX*\u00d7\u00b7\u22c5\u2219])[ ]{{0,4}}10{_EXPONENT})?"
    r"(?P<scales>(?:[ -]{0,3}(?i:hundred|thousand|million|billion|trillion)s?\b){1,3})?"
    r"(?P<percent>[ ]{0,2}%|[ -](?i:per[ ]?cent)\b)?(?!\.?[0-9])",
    re.IGNORECASE,
)
_SCALE = re.compile("hundred|thousand|million|billion|trillion", re.IGNORECASE)
_SCALES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}

_SPELLINGS = str.maketrans(
    dict.fromkeys("\u2010\u2011\u2012\u2013\u2212\ufe63\uff0d", "-")
    | dict.fromkeys("\t\u00a0\u2007\u2009\u202f", " ")
    | {0x2026: "...", 0x3002: "."}
    | dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff")
    | dict(zip("０１２３４５６７８９．／％\u2044", "0123456789./%/", strict=True))
)
_GROUPING = re.compile(r"(?<=[0-9])(?:\\[,;: ]|,\\!|~)(?=[0-9]{3})")
_LATEX_SPACE = re.compile(r"\\[,;:! ]|~")
_MARKS = set(" \n$€£¥₹\\()[]{}*.,;:?\"'`‘’“”")
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-")
_RAISED_TEXT = re.compile(r"<sup>([-+]?[0-9]{1,9})</sup>|([⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻]{1,64}+)")
_PART = r"\s?(?:\{\s?(-?[0-9][0-9.,]{0,299})\s?\}|([0-9]))"
_FRACTION = re.compile(rf"([0-9][ ]?)?\\[dtc]?frac{_PART}{_PART}")
_VULGAR_FRACTION = re.compile(r"([0-9][ ]?)?([¼½¾⅐-⅞])")
_REASON = re.compile(r",\s?(?:since|because)\b")
_ASIDE = re.compile(r"\s\((?=[^()]{0,200}[^\W\d_]{2})[^()]{1,200}\)\Z")
_NAME = re.compile(r"[\s$*(\\]*+[A-Za-z](?:_\{?\w{1,3}\}?)?[ ]?=(?!=)")
_UNIT = re.compile(
    r"(?:[^\W\d_]|[ /°*$€£¥₹()\[\]{}'\"`~-]|\.(?![ ][A-Z])|\\(?:circ|degree)(?![a-z])|\\(?![A-Za-z])"
    r"|\^\s?\{?\s?(?:-?[123]|\\circ|\\degree)\s?\}?|\*\*[23]|[²³])*"
)
_WORD = re.compile(r"(?<![\\\w])[^\W\d_]+")
_TOUCHING = frozenset(("m", "cm", "mm", "km", "g", "kg", "mg", "l", "ml", "ft", "in", "s", "min", "h", "hr", "mph"))
_CHANGING = re.compile(
    # A letter that is no unit; adverbs, conjunctions, comparisons, hedges, verbs; numerals, counts, scales, functions.
    r"(?<![\\\w])(?:[^\W\d_mgslhdLANJWVCF]|\w+ly|(?i:and|or|but|if|not?|nor|plus|minus|times|to|than|at|least|most|less|more|fewer"
    r"|under|over|above|below|up|about|around|almost|maybe|perhaps|so|ish|is|isn|are|aren|was|be|can|cannot|could|may|might"
    r"|must|should|would|will|has|have|wrong|false|zero|one|two|three|four|five|six|seven|eight|nine|ten|hundred|thousand"
    r"|[mbtr]illion|[bmt]n|mil|mln|dozen|score|pair|couple|gross|point|hal[fv]e?|quarter|third|fourth|fifth|sixth|seventh"
    r"|eighth|ninth|tenth|(?:hundred|thousand|million)th|th|squared|cubed|factorial|root|sqrt|log|ln|exp|sin|cos|tan|mod|pi)s?)(?!\w)"
)
"""Words behind a number that make another number of it, or none."""
_MAX_WORDS = 8


def read_number(text: str, *, has_unit: bool = True) -> tuple[Fraction, bool] | None:
    r"""The number that a text is, and whether it is a percentage; None where it is anything else, or too large.

    Forms: 1,234.5, 1 234.5, -3, 2e-3, 3/4, \frac{3}{4}, 2 3/4, 12%, 12 percent, 2^10, 1.5 \times 10^5, 1.5 million.
    Beside it stands what marks an amount, a formula or an end; if `has_unit`, a unit or another noun, and one
    explanation in parentheses or behind a comma and since or because.
    """
    if has_unit:
        stated = _ASIDE.sub("", _REASON.split(text, maxsplit=1)[0].strip().removesuffix("."))
        text = stated[named.end() :] if (named := _NAME.match(stated)) else stated
    text = _plain(text)
    number = _NUMBER.match(text)
    if number is None or (number["sign"] and number["late"]) or (value := _value(number)) is None:
        return None
    behind = text[number.end() :].rstrip()
    is_one = not set(behind) - _MARKS or (has_unit and _is_unit(behind))
    return (value, number["percent"] is not None) if is_one else None


def value_of(text: str) -> Fraction | None:
    """The value of the number that a text is; None where it is anything else."""
    number = read_number(text)
    return None if number is None else number[0]


def _is_unit(behind: str) -> bool:
    words = _WORD.findall(behind)
    if _UNIT.fullmatch(behind) is None or len(words) > _MAX_WORDS:
        return False
    if not words:
        return "°" in behind or "circ" in behind
    return _CHANGING.search(behind) is None and (words[0] in _TOUCHING or not behind[0].isalpha())


def _value(number: re.Match[str]) -> Fraction | None:
    """The value of a match of `_NUMBER`, with bounds on what is computed."""
    digits, top = number["digits"], number["top"]
    exponents = ((number["power"] or "1"), (number["tens"] or "0"))
    power, tens = (int(re.findall(r"[-+]?[0-9]+", text)[-1]) for text in exponents)
    scale = (
        int(number["ten"] or 0) + tens + sum(_SCALES[word.lower()] for word in _SCALE.findall(number["scales"] or ""))
    )
    base = number["below"] or digits
    is_too_large = len(digits) > MAX_NUMBER_CHARS or abs(scale) > MAX_SCALE or len(base) * abs(power) > MAX_POWER_CHARS
    if is_too_large or (top and number["power"]):
        return None
    try:
        value = _decimal(digits)
        if top:
            part = Fraction(int(top), int(number["under"]))
            if "." in digits or part >= 1:
                return None  # two numbers
            value += part
        elif number["below"]:
            value /= _decimal(base) ** power
        else:
            value **= power
    except (ValueError, ZeroDivisionError):
        return None
    signs = -1 if (number["sign"] or number["late"] or "+").lower() != "+" else 1
    return value * signs * Fraction(10) ** scale / (100 if number["percent"] else 1)


def _decimal(text: str) -> Fraction:
    return Fraction(text.replace(",", "").replace(" ", ""))


def _plain(text: str) -> str:
    """Spell signs, fractions, powers, grouped digits and percent signs in one way."""
    text = text.translate(_SPELLINGS)
    if "\\" in text or "{" in text or "~" in text:
        text = _GROUPING.sub(",", plain_latex(text).replace("{,}", ",").replace("\\%", "%"))
        text = _FRACTION.sub(_spelled_fraction, _LATEX_SPACE.sub(" ", text))
    if "<" in text or not text.isascii():
        text = _RAISED_TEXT.sub(lambda run: f"^{{{run[1] or run[2].translate(_SUPERSCRIPTS)}}}", text)
        text = _VULGAR_FRACTION.sub(_spelled_fraction, text)
    return text


def _spelled_fraction(match: re.Match[str]) -> str:
    whole, *parts = match.groups()
    written = [part for part in parts if part]
    part = "/".join(written) if len(written) > 1 else normalize("NFKC", written[0]).replace("\u2044", "/")
    return f"{whole.strip()} {part}" if whole else part
