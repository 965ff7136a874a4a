"""Units, currencies and magnitude words that follow or precede a number."""

from __future__ import annotations

import re
from fractions import Fraction

CURRENCIES = {"$": "dollar", "€": "euro", "£": "pound", "¥": "yen", "₹": "rupee", "₩": "won", "₽": "rouble"}

MAGNITUDES = {
    "hundred": Fraction(100),
    "thousand": Fraction(1000),
    "million": Fraction(10**6),
    "billion": Fraction(10**9),
    "trillion": Fraction(10**12),
}
SHORT_MAGNITUDES = {"k": Fraction(1000), "K": Fraction(1000), "M": Fraction(10**6), "bn": Fraction(10**9)}
"""Touch a number that has a unit, `18k dollars`; `18k` alone is a product."""

_SPELLINGS = """
metre: m meter meters metre metres
centimetre: cm centimeter centimeters centimetre centimetres
millimetre: mm millimeter millimeters millimetre millimetres
kilometre: km kms kilometer kilometers kilometre kilometres
inch: in inch inches
foot: ft foot feet
yard: yd yds yard yards
mile: mi mile miles
gram: g gm gms gram grams
kilogram: kg kgs kilogram kilograms
milligram: mg milligram milligrams
pound: lb lbs pound pounds GBP
ounce: oz ounce ounces
litre: L l liter liters litre litres
millilitre: ml mL milliliter milliliters millilitre millilitres
gallon: gal gals gallon gallons
second: s sec secs second seconds
minute: min mins minute minutes
hour: h hr hrs hour hours
day: day days
week: wk wks week weeks
month: mo month months
year: yr yrs year years
degree: deg degs degree degrees
dollar: dollar dollars USD
cent: cent cents
euro: euro euros EUR
rupee: Rs INR rupee rupees
am: am AM
pm: pm PM
mph: mph
kilometre per hour: kmh kph
"""
CANONICAL = {
    spelling: canonical
    for canonical, _, spellings in (line.partition(": ") for line in _SPELLINGS.strip().splitlines())
    for spelling in spellings.split()
}
"""Spellings of units that are distinguished: 5 cm is not 5 m. Other words are ignored."""

_GLUE = frozenset((
    "a", "an", "at", "by", "cu", "for", "her", "his", "in", "is", "its", "more", "my", "of", "on", "our",
    "per", "sq", "st", "th", "the", "to", "us",
))  # fmt: skip
FRACTION_UNITS = (
    "halves", "thirds", "fourths", "fifths", "sixths", "sevenths", "eighths", "ninths", "tenths", "hundredths",
    "thousandths",
)  # fmt: skip
"""Words that divide the number before them; `quarters` are coins more often."""
CHANGES = (
    "squared",
    "cubed",
    "halved",
    "doubled",
    "tripled",
    "divided",
    "multiplied",
    "raised",
    "factorial",
    *FRACTION_UNITS,
)
"""Words that make another number of the one before them."""
_NOT_A_UNIT = frozenset((
    "and", "or", "plus", "minus", "times", "over", "mod", "modulo", "choose", "not", "nor", "if", "then", "else",
    "versus", *CHANGES,
))  # fmt: skip
# With two letters these could be products of variables, so they are listed.
_ABBREVIATIONS = frozenset(("KB", "MB", "GB", "TB", "BC", "AD", "Kg", "KG", "Km", "KM", "Mi", "Hz"))
_MAX_WORDS = 8
"""Longest description after a number, `18 dollars every day at the market`; longer ones are sentences."""
_WORD_BREAK = re.compile(r"[ ./'\-]+")
_SQUARE = re.compile(r"(?<=[A-Za-z])\s?(?:\^\s?(?:\{([23])\}|([23]))|([23]))$")


def read_unit(tail: str, *, is_spaced: bool) -> str | None:
    """Return the canonical unit of what follows a number, "" for words that name no known unit, None for no unit.

    Args:
        tail: The text right after the number.
        is_spaced: Whether white space stood between; `5m` is an expression, `5 m` a length.
    """
    tail = tail.strip(" ~.")
    power = _SQUARE.search(tail)
    suffix = ""
    if power:
        suffix = f"^{power[1] or power[2] or power[3]}"
        tail = tail[: power.start()].rstrip()
    words = [word for word in _WORD_BREAK.split(tail.strip("()")) if word]
    if not words:
        return "" if not tail else None
    if len(words) > _MAX_WORDS or not all(word.isalpha() for word in words):
        return None
    if len(words) == 1 and words[0] in CANONICAL:
        return CANONICAL[words[0]] + suffix if is_spaced or len(words[0]) > 1 else None
    # The 2 of `18 less 2` is no power of a unit.
    if suffix and words[-1].lower() in ("less", "to", "of"):
        return None
    if any(word.lower() in _NOT_A_UNIT or not _is_unit_word(word) for word in words):
        return None
    # `5abc` is a product of variables; `5apples` is a slip of the space bar.
    if not is_spaced and words[0] not in CANONICAL and len(words[0]) <= 3 and words[0].isascii():
        return None
    # `10 feet tall` names the foot; `10 miles per hour` and `10 square feet` name something else.
    is_compound = suffix or "/" in tail or any(word.lower() in ("per", "square", "cubic", "sq", "cu") for word in words)
    return "" if is_compound else CANONICAL.get(words[0], CANONICAL.get(words[0].lower(), ""))


def _is_unit_word(word: str) -> bool:
    return len(word) >= 3 or not word.isascii() or word in CANONICAL or word.lower() in _GLUE or word in _ABBREVIATIONS
