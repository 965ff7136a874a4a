"""Reads an answer into a value."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

from grpo_tasks_math.verify.exact import decimal_places, evaluate
from grpo_tasks_math.verify.normalise import clean, trim
from grpo_tasks_math.verify.units import CANONICAL, CURRENCIES, MAGNITUDES, SHORT_MAGNITUDES, read_unit
from grpo_tasks_math.verify.values import (
    Based,
    Choice,
    Contradiction,
    Equation,
    Formula,
    Items,
    NotANumber,
    Number,
    Value,
    Words,
)

MAX_ANSWER_CHARS = 2000
"""Longest answer that is read; the longest gold of MATH has 159 characters."""
MAX_ITEMS = 64
"""Most members of a list: unordered comparison is quadratic."""
MAX_NESTING = 8
"""Lists inside lists, `((1, 2), (3, 4))`."""


_PLAIN = re.compile(r"\s*([+-]?[0-9]{1,18})(?:\.0*)?\s*")
_NAN = frozenset({"nan", "+nan", "-nan", "not a number"})
_CHOICE = re.compile(r"(?:(?:[Oo]ption|[Cc]hoice|[Aa]nswer)\s*)?(?:([A-J])|\(\s*([A-Ja-j])\s*\)|([A-J])\))[.:]?")
# `(a) + b` is a sum, `(b) -5` a choice.
_CHOICE_WITH_TEXT = re.compile(r"(?:\(([A-Ja-j])\)|([A-J])[).:])\s(?![-+] |[*/^=(]).*")
_BASED = re.compile(
    r"([0-9A-Fa-f]{1,64})\s?_\s?(?:\{\s?([0-9]{1,2})\s?\}|([0-9]{1,2})|\{?\s?(two|three|eight|ten)\s?\}?)"
)
_BASE_WORDS = {"two": 2, "three": 3, "eight": 8, "ten": 10}
_EMPTY_SET = re.compile(r"\\emptyset|\\\{\s?\\\}")


def read(raw: str, depth: int = 0) -> Value | None:
    """Read an answer; None when there is nothing to read or it is longer than `MAX_ANSWER_CHARS`.

    Linear in the length but for short, bounded steps; never raises on any text.
    """
    if (plain := _PLAIN.fullmatch(raw)) is not None:
        return Number(plain[1], Fraction(int(plain[1])))
    if len(raw) > MAX_ANSWER_CHARS:
        return None
    text = trim(clean(raw))
    if not any(char.isalnum() for char in text) and not _EMPTY_SET.fullmatch(text):
        return None
    if text.lower().strip(" $") in _NAN:
        return NotANumber(text)
    if (simple := _read_choice(text) or _read_number(text) or _read_based(text)) is not None:
        return simple
    if depth < MAX_NESTING and (structured := _read_equation(text, depth) or _read_items(text, depth)) is not None:
        return structured
    return _read_measured_formula(text) or _read_words(text) or Formula(text, _read_quantity(text))


def _read_choice(text: str) -> Choice | None:
    match = _CHOICE.fullmatch(text) or _CHOICE_WITH_TEXT.fullmatch(text)
    if match is None:
        return None
    return Choice(text, next(letter for letter in match.groups() if letter).upper())


_SIGN_AND_CURRENCY = re.compile(
    rf"(?P<sign>[+-]?)\s?(?:(?:US|A|C)?(?P<currency>[{''.join(CURRENCIES)}])|Rs\.?|USD|EUR|GBP|INR)\s?(?=[-+\d.\\({{])"
)
_EXPLAINED = re.compile(r"(?P<value>-?[0-9][0-9.,/]{0,60})\s\(\s?=?\s?(?P<how>[^()]{1,200})\)")
_ENDS_OF_NUMBER = "0123456789)]}!"
_WORD_UNIT_POWER = re.compile(r"(?<=[A-Za-z])\s?\^?\s?\{?[23]\}?$")


def _read_number(text: str) -> Number | None:
    """Read an exact number with its sign, currency, percent sign, magnitude and unit."""
    # `(100,200)` is a pair, though brackets may stand around a number.
    if "," in text and text[0] in "([":
        return None
    unit = ""
    body = text
    if (prefix := _SIGN_AND_CURRENCY.match(body)) is not None:
        unit = CURRENCIES.get(prefix["currency"] or "", "")
        body = prefix["sign"] + body[prefix.end() :]
    elif body[-1] in CURRENCIES:
        unit = CURRENCIES[body[-1]]
        body = body[:-1].rstrip()
    is_percent = body.endswith("%")
    number = evaluate(body[:-1].rstrip() if is_percent else body)
    if (explained := _EXPLAINED.fullmatch(body)) is not None:
        value = evaluate(explained["value"])
        # `18 (3 * 6)` says how 18 came about; `18 (3 + 1)` is a product.
        number = value if evaluate(explained["how"]) == value else number
    if number is not None:
        return Number(text, number, is_percent, unit)
    head, tail = _split_unit(body)
    if not tail or (number := evaluate(head.rstrip())) is None:
        return None
    return _with_words(text, number, unit, tail.lstrip(), is_spaced=tail[:1] == " ")


def _split_unit(text: str) -> tuple[str, str]:
    """Split at the last character that can end a number: `5 cm^2` into `5` and ` cm^2`."""
    power = _WORD_UNIT_POWER.search(text)
    end = power.start() if power else len(text)
    last = max(text.rfind(char, 0, end) for char in _ENDS_OF_NUMBER)
    # `3. Conclusion` is a heading, not three conclusions.
    if last < 0 or text[last + 1 : last + 2] == ".":
        return text, ""
    return text[: last + 1], text[last + 1 :]


def _with_words(text: str, number: Fraction, unit: str, words: str, *, is_spaced: bool) -> Number | None:
    first, _, rest = words.partition(" ")
    if first.lower().rstrip("s") in MAGNITUDES:
        number *= MAGNITUDES[first.lower().rstrip("s")]
        first, _, rest = (words := rest).partition(" ")
    elif first in SHORT_MAGNITUDES and not is_spaced and (unit or rest in CANONICAL):
        return Number(text, number * SHORT_MAGNITUDES[first], unit=unit or CANONICAL[rest])
    if first in ("%", "percent", "pct", "percentage") or words == "per cent":
        return Number(text, number, is_percent=True) if read_unit(rest, is_spaced=True) is not None else None
    named = read_unit(words, is_spaced=is_spaced)
    return None if named is None else Number(text, number, unit=unit or named)


def _read_based(text: str) -> Based | None:
    match = _BASED.fullmatch(text)
    if match is None:
        return None
    base = int(match[2] or match[3]) if match[2] or match[3] else _BASE_WORDS[match[4]]
    return Based(text, match[1].lower(), base)


_EQUALS = frozenset(("=",))
_NAME = re.compile(
    r"[A-Za-z](?:_(?:\{\w{1,8}\}|\w))?'?(?:\(\s?[A-Za-z](?:\s?,\s?[A-Za-z]){0,3}\s?\))?"
    r"|\\[a-z]{2,8}|[A-Za-z][A-Za-z '\-]{1,60}|\\angle\s?[A-Z]{1,3}|[A-Z]{2,3}"
    # A ratio of lengths, areas or volumes.
    r"|\\frac\{[A-Z]{2}\}\{[A-Z]{2}\}|[A-Z]{2}\s?[/:]\s?[A-Z]{2}|[SV](?:_\{?\w{1,4}\}?)?\s?[/:]\s?[SV](?:_\{?\w{1,4}\}?)?"
)
_MEMBERSHIP = re.compile(r"[A-Za-z]\s?\\in(?![A-Za-z])\s?")


def _read_equation(text: str, depth: int) -> Value | None:
    if (membership := _MEMBERSHIP.match(text)) is not None:
        return read(text[membership.end() :], depth + 1)
    if "=" not in text or len(_split_items(text)) > 1:
        return None
    parts = _split(text, _EQUALS)
    if len(parts) < 2:
        return None
    value = read(parts[-1], depth + 1)
    if value is None or (isinstance(value, Words) and value.is_prose) or not _is_formula(text):
        return None
    kind = Contradiction if contradicts(parts) else Equation
    return kind(text, parts[0] if _NAME.fullmatch(parts[0]) else "", value)


def contradicts(parts: Sequence[str]) -> bool:
    """Whether a plain number before the last `=` differs from the one behind it, which nothing else comes to.

    A slip in a computation, `x = 3 + 3 = 5`, leaves one answer; `x = 4 = 5` gives two.
    """
    last = evaluate(trim(parts[-1]))
    if last is None:
        return False
    others = [(part, number) for part in parts[:-1] if (number := evaluate(part)) is not None]
    has_plain = any(decimal_places(part) is not None for part, _ in others)
    return has_plain and not any(_is_rounded(part, number, parts[-1], last) for part, number in others)


def _is_rounded(left: str, first: Fraction, right: str, last: Fraction) -> bool:
    places = [shown for shown in (decimal_places(left), decimal_places(right)) if shown]
    return abs(first - last) <= max((Fraction(1, 10**shown) for shown in places), default=Fraction(0))


_OPENING = frozenset(("(", "[", "{", "\\{", "\\langle", "\\begin"))
_CLOSING = frozenset((")", "]", "}", "\\}", "\\rangle", "\\end"))
_MARK = re.compile(
    r"\\[{}]|\\(?:langle|rangle|begin|end)(?![a-z])|[()\[\]{},;]|(?<![A-Za-z])(?:and|or)(?![A-Za-z])|(?<![<>!=:\\])=(?!=)"
)
_ITEM_SEPARATORS = frozenset((",", ";", "and", "or"))
_GROUP = re.compile(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))")
_ALL_NUMBERS = re.compile(r"[-+$]?[0-9][0-9.,%/]*(?:\s[-+$]?[0-9][0-9.,%/]*){1,200}")


def _split(text: str, separators: frozenset[str]) -> list[str]:
    """Split at the separators outside every bracket; unbalanced text is one piece."""
    depth = start = 0
    pieces = []
    for match in _MARK.finditer(text):
        mark = match[0]
        if mark in _OPENING:
            depth += 1
        elif mark in _CLOSING:
            depth -= 1
            if depth < 0:
                return [text]
        elif depth == 0 and mark in separators:
            pieces.append(text[start : match.start()])
            start = match.end()
    pieces.append(text[start:])
    # `1, 2, and 3` leaves an empty piece between the comma and the word.
    return [piece for piece in map(str.strip, pieces) if piece] if depth == 0 else [text]


def _split_items(text: str) -> list[str]:
    return _split(text, _ITEM_SEPARATORS)


def _read_items(text: str, depth: int) -> Value | None:
    """Read a bracketed or bare list; brackets around one value mean nothing."""
    if _EMPTY_SET.fullmatch(text):
        return Items("\\emptyset", "{}", ())
    if (union := _read_union(text)) is not None:
        return union
    if (opened := _unwrap(text)) is not None:
        brackets, inner = opened
        # Inside brackets a comma separates, unless others with a space after them show that it groups digits.
        pieces = _split_items(_GROUP.sub("", inner) if ", " in inner or ";" in inner else inner)
        if len(pieces) == 1 and brackets != "[)" and brackets != "(]":
            return read(pieces[0], depth + 1)
        return _items(text, brackets, pieces, depth)
    pieces = _split_items(_GROUP.sub("", text))
    if len(pieces) == 1 and _ALL_NUMBERS.fullmatch(text):
        pieces = text.split()
    pieces = [item for piece in pieces for item in _both_signs(piece)]
    return _items(text, "", pieces, depth) if len(pieces) > 1 else None


_ONE_SIDED = re.compile(r"\(?([A-Za-z])\s?(<|>|\\(?:le|ge)q?(?![A-Za-z]))\s?([^<>=,]{1,60}?)\)?")
_UPPER = {"<": ")", "\\le": "]", "\\leq": "]"}
_LOWER = {">": "(", "\\ge": "[", "\\geq": "["}


def _read_union(text: str) -> Formula | None:
    r"""Read `x < 1 or x > 2` as the union of intervals."""
    pieces = [_ONE_SIDED.fullmatch(piece) for piece in _split(text, frozenset(("or",)))]
    sides = [piece.groups() for piece in pieces if piece is not None]
    if not 1 < len(sides) == len(pieces) or len({name for name, _, _ in sides}) > 1:
        return None
    return Formula(
        " \\cup ".join(
            f"(-\\infty, {bound}{_UPPER[relation]}" if relation in _UPPER else f"{_LOWER[relation]}{bound}, \\infty)"
            for _, relation, bound in sides
        )
    )


def _both_signs(text: str) -> tuple[str, ...]:
    r"""Write `a \pm b` as `a + b` and `a - b`."""
    return tuple(text.replace("\\pm", sign).strip() for sign in "+-") if text.count("\\pm") == 1 else (text,)


def _items(text: str, brackets: str, pieces: list[str], depth: int) -> Items | None:
    if not 1 <= len(pieces) <= MAX_ITEMS:
        return None
    values = [read(piece, depth + 1) for piece in pieces]
    if any(value is None or (isinstance(value, Words) and value.is_prose) for value in values):
        return None
    # `Well, 42` and `Yes, that is it` are sentences: a bare list holds mathematics, or single words.
    words = [value.words for value in values if isinstance(value, Words) and len(value.words) > 1]
    if not brackets and words and (len(words) < len(values) or any(" " in word for word in words)):
        return None
    if not brackets and any(isinstance(value, Equation) and " " in value.name for value in values):
        return None
    return Items(text, brackets, tuple(value for value in values if value is not None))


def _unwrap(text: str) -> tuple[str, str] | None:
    r"""Split `(…)`, `[…)`, `\{…\}` or `\langle…\rangle` into brackets and inside, when one pair encloses all."""
    for opening, closing, kind in (("\\{", "\\}", "{}"), ("\\langle", "\\rangle", "()"), ("{", "}", "{")):
        if text.startswith(opening) and text.endswith(closing):
            inner = text[len(opening) : -len(closing)]
            return (kind, inner) if _is_balanced(inner) else None
    if len(text) > 2 and text[0] in "([" and text[-1] in ")]" and _is_balanced(inner := text[1:-1]):
        return text[0] + text[-1], inner
    return None


def _is_balanced(text: str) -> bool:
    """Whether no bracket closes that was not opened inside, so that the outer pair belongs together."""
    depth = 0
    for match in _MARK.finditer(text):
        depth += (match[0] in _OPENING) - (match[0] in _CLOSING)
        if depth < 0:
            return False
    return depth == 0


_COMMAND = re.compile(r"\\(?:begin|end)\s?\{[a-z]{1,16}\*?\}|\\[A-Za-z]+")
_RUN_OF_LETTERS = re.compile(r"[^\W\d_]+")
_FUNCTIONS = frozenset((
    "sin", "cos", "tan", "cot", "sec", "csc", "log", "ln", "exp", "max", "min", "gcd", "lcm", "mod", "det", "arg",
    "deg", "sqrt", "degrees", "arcsin", "arccos", "arctan",
))  # fmt: skip
_SHORT_WORDS = frozenset((
    "is", "it", "we", "so", "he", "she", "the", "are", "was", "has", "had", "for", "his", "her", "get", "got", "can",
    "of", "to", "be", "by", "as", "at", "if", "an", "on", "no", "in", "up", "me", "my", "us", "or", "and", "not",
    "all", "one", "two", "per", "out", "you", "who", "its", "him", "did", "new", "now",
))  # fmt: skip
_LONGEST_PRODUCT = 3
"""`abc` may be a product of three variables; longer runs of letters are words."""
_MATHEMATICS = re.compile(r"[0-9\\^_=<>+*/|]")
_DIFFERENCE_OR_PRODUCT = re.compile(r"[A-Za-z)]\s?[-(]\s?[A-Za-z(]|^-\s?[A-Za-z(]")
"""What else may be mathematics where no run of letters is a word: `p - q`, `a(b - c)`, `-x`."""
_OPERATION = re.compile(r"[\\^_=<>+*/|]")
_TRIGONOMETRY = re.compile(r"\\?(?:sin|cos|tan|cot|sec|csc)")


def _is_formula(text: str) -> bool:
    """Whether no run of letters is a word, LaTeX commands and function names aside."""
    return all(
        run in _FUNCTIONS or (len(run) <= _LONGEST_PRODUCT and run.lower() not in _SHORT_WORDS)
        for run in _RUN_OF_LETTERS.findall(_COMMAND.sub(" ", text))
    ) or (
        "=" in text
        and _NAME.fullmatch(text.partition("=")[0].strip()) is not None
        and _is_formula(text.partition("=")[2])
    )


def _read_measured_formula(text: str) -> Formula | None:
    r"""Drop a unit behind a formula, `10\sqrt{3} cm`; an angle inside a function belongs to it."""
    head, tail = _split_unit(text)
    head = head.rstrip()
    if len(tail.strip()) < 2 or not _OPERATION.search(head) or not _is_formula(head) or _TRIGONOMETRY.search(head):
        return None
    unit = read_unit(tail, is_spaced=tail[0] == " ")
    # `\\sqrt{2} abc` may be a product; a unit by name or longer words are not.
    return Formula(head) if unit or (unit == "" and not _is_formula(tail)) else None


_QUANTITY = re.compile(r"(-?[0-9][0-9.,]{0,30})([mghsLl])")


def _read_quantity(text: str) -> Number | None:
    match = _QUANTITY.fullmatch(text)
    number = evaluate(match[1]) if match else None
    return None if match is None or number is None else Number(text, number, unit=CANONICAL[match[2]])


_ARTICLE = re.compile(r"\b(?:the|an|a)\s(?=\w)")


def _read_words(text: str) -> Words | None:
    has_mathematics = _MATHEMATICS.search(text) is not None or not _FUNCTIONS.isdisjoint(_RUN_OF_LETTERS.findall(text))
    if (has_mathematics or _DIFFERENCE_OR_PRODUCT.search(text)) and _is_formula(text):
        return None
    words = " ".join(text.lower().rstrip("!").split())
    return Words(text, _ARTICLE.sub("", words, count=1), is_prose=has_mathematics)
