"""Units, currencies and words that change the number before them: closed lists; every other noun means nothing."""

from __future__ import annotations

import re
from fractions import Fraction

CURRENCIES = {"$": "dollar", "€": "euro", "£": "pound", "¥": "yen", "₹": "rupee", "₩": "won", "₽": "rouble"}

_SPELLINGS = """
metre: m meter meters metre metres; centimetre: cm cms centimeter centimeters centimetre centimetres
millimetre: mm millimeter millimeters millimetre millimetres
kilometre: km kms Km KM kilometer kilometers kilometre kilometres; inch: in inch inches ''; foot: ft foot feet '
yard: yd yds yard yards; mile: mi Mi mile miles; gram: g gm gms gram grams
kilogram: kg kgs Kg KG kilogram kilograms kilo kilos; milligram: mg milligram milligrams; ton: ton tons
tonne: tonne tonnes; ohm: ohm ohms; ampere: A amp amps ampere amperes; knot: knot knots; centimetre^3: cc
byte: byte bytes; kilobyte: KB kB kilobyte kilobytes; megabyte: MB megabyte megabytes; gigabyte: GB gigabyte gigabytes
terabyte: TB terabyte terabytes; kilohertz: kHz; megahertz: MHz; gigahertz: GHz; calorie: cal calorie calories
pound: lb lbs pound pounds GBP; ounce: oz ounce ounces; litre: L l liter liters litre litres
millilitre: ml mL milliliter milliliters millilitre millilitres; gallon: gal gals gallon gallons
quart: qt quart quarts; pint: pt pint pints; acre: acre acres; hectare: ha hectare hectares
second: s sec secs second seconds; minute: min mins minute minutes; hour: h hr hrs hour hours; day: day days
week: wk wks week weeks; month: mo month months; year: yr yrs year years; degree: deg degs degree degrees
radian: rad rads radian radians; celsius: celsius C; fahrenheit: fahrenheit F; kelvin: kelvin kelvins
dollar: dollar dollars USD buck bucks; cent: cent cents; euro: euro euros EUR; rupee: Rs INR rupee rupees
yen: yen JPY; newton: N newton newtons; joule: J joule joules; watt: W watt watts; kilowatt: kW kilowatt kilowatts
volt: V volt volts; hertz: Hz hertz; %: % percent pct percentage; mile/hour: mph; kilometre/hour: kmh kph
"""
CANONICAL = {
    spelling: canonical
    for canonical, _, spellings in (line.partition(": ") for line in re.split("[;\n] ?", _SPELLINGS.strip()))
    for spelling in spellings.split()
}
"""Spellings of units that are distinguished: 5 cm is not 5 m. Other nouns are ignored."""

_PARTS = ("half", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
SCALES = {
    "dozen": Fraction(12),
    "hundred": Fraction(100),
    "thousand": Fraction(1000),
    "k": Fraction(1000),
    "million": Fraction(10**6),
    "billion": Fraction(10**9),
    "bn": Fraction(10**9),
    "trillion": Fraction(10**12),
    **{f"{part}s": Fraction(1, number) for number, part in enumerate(_PARTS, 2)},
    "halves": Fraction(1, 2),
    "hundredths": Fraction(1, 100),
    "thousandths": Fraction(1, 1000),
}
"""Words that multiply the number before them; `quarters` are coins more often."""
_TOUCHING_SCALES = {"K": Fraction(1000), "M": Fraction(10**6)}
"""Touch a number that has a unit, `$18M`."""

_ALTERING = """
number: two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
deny: not never cannot neither nor hardly nope nah nobody wrong wrongly incorrect incorrectly false untrue mistake
mistakes mistaken impossible unlikely implausible plausible doubt rejected excluded disproved refuted invalid
suppose except
suppose: if unless whether supposing assume assuming let
doubt: possibly perhaps maybe probably potentially alternatively guess unsure estimated estimate
change: and or plus minus over mod modulo choose then else otherwise versus vs squared cubed halved doubled tripled
divided multiplied raised factorial half third st nd rd th give take but ish though although base possible
likely could might would approximately approx about roughly nearly almost than least most max maximum minimum
tops bound below above under zero negative inverse reciprocal opposite double triple twice thrice score gross
lakh crore grand zillion fold
"""
_KINDS = {kind: tuple(words.split()) for kind, words in re.findall(r"([a-z]+):([^:]+)(?=\n[a-z]+:|$)", _ALTERING)}
NUMBER_WORDS, DENYING, CONDITIONS, DOUBTS, _ = _KINDS.values()
ALTERING = frozenset(word for words in _KINDS.values() for word in words)
"""Words that make another value, bound one, deny or doubt it: no name of a value and no noun behind one holds them."""
_FRACTIONS = ("fold", "teenths", "tieths")
_GLUE = frozenset((
    "a", "an", "at", "by", "cu", "for", "her", "his", "in", "is", "its", "more", "my", "of", "on", "our", "per", "sq",
    "the", "to", "us", "BC", "AD",
))  # fmt: skip
# With two letters other words could be products of variables.
_MAX_WORDS = 8
"""Longest description behind a number, `18 dollars every day at the market`; longer ones are sentences."""
_TOKEN = re.compile(r"[\s.'\-()]*(?:(/)|([^\W\d_]+|%)(?:\s?\^\s?\{?(-?[123])\}?|([23])(?!\d))?|(\S))")
_APART = re.compile(r"degrees? (?=(?:[CF]|celsius|fahrenheit)\b)|(?<=per) (?=cent\b)", re.IGNORECASE)
_POWERS = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
_RAISED = {"squared": 2, "cubed": 3}


def read_unit(tail: str, *, is_spaced: bool) -> tuple[Fraction, str] | None:
    """Read what follows a number: what it is multiplied by, and its unit (empty for another noun); None for no unit.

    Args:
        tail: The text right after the number.
        is_spaced: Whether white space stood between; `5m` is an expression, `5 m` a length.
    """
    tokens = [match.groups() for match in _TOKEN.finditer(_APART.sub("", tail))]
    if len(tokens) > 2 * _MAX_WORDS or any(other for *_, other in tokens):
        return (Fraction(1), CANONICAL.get(tail.strip(" .~"), "")) if not tail.strip(" .'~") else None
    words = [(word or "per", int(power or digit or 1)) for _, word, power, digit, _ in tokens]
    scale = Fraction(1)
    if words and not is_spaced and words[0][0] in _TOUCHING_SCALES and len(words) > 1:
        scale *= _TOUCHING_SCALES[words.pop(0)[0]]
    while words and (factor := SCALES.get(words[0][0].lower(), SCALES.get(words[0][0].lower().removesuffix("s")))):
        scale *= factor
        words.pop(0)
        is_spaced = True
    if not words:
        return scale, ""
    if tokens[-1][0]:  # an operator that dangles
        return None
    first = words[0][0]
    if len(words) > _MAX_WORDS or any(not _may_describe(word, place) for place, (word, _) in enumerate(words)):
        return None
    if not is_spaced and (len(first) == 1 or (first not in CANONICAL and len(first) <= 3 and first.isascii())):
        return None  # a product of variables; `5apples` is a slip of the space bar
    return scale, _named(words)


def _may_describe(word: str, place: int) -> bool:
    if (word.lower() in ALTERING or word.endswith(_FRACTIONS)) and not (place and word in _RAISED):
        return False
    return len(word) >= 3 or not word.isascii() or word in CANONICAL or word.lower() in _GLUE or word in _GLUE


def _named(words: list[tuple[str, int]]) -> str:
    """`mile/hour` of `miles per hour`, `metre^2` of `square metres`, `foot` of `feet tall`."""
    above, below, power, is_below = "", "", 1, False
    for word, exponent in words:
        if word == "per" or (word in ("a", "an", "each", "every") and above):
            is_below = True
        elif word.lower() in _POWERS:
            power = _POWERS[word.lower()]
        elif word in _RAISED:
            above = f"{above}^{_RAISED[word]}" if above and not is_below else above
        elif (unit := CANONICAL.get(word, CANONICAL.get(word.lower(), ""))) and not (below if is_below else above):
            power *= exponent
            unit = f"{unit}^{power}" if power > 1 else unit
            above, below, power = (above, unit, 1) if is_below else (unit, below, 1)
        else:
            break
    return f"{above}/{below}" if below else above
