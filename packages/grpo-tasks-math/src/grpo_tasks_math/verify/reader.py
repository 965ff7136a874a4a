"""Reads the content of a mark, or a gold, into a value: the whole of it, or it is text."""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import accumulate

from grpo_tasks_math.verify import units
from grpo_tasks_math.verify.exact import evaluate
from grpo_tasks_math.verify.normalise import balanced, clean, trim
from grpo_tasks_math.verify.units import CANONICAL, CURRENCIES, SCALES, read_unit
from grpo_tasks_math.verify.values import Choice, Digits, Equation, Formula, Items, NaN, Number, Relation, Value, Words

MAX_ANSWER_CHARS = 2000
"""Longest answer that is read; the longest gold of MATH has 159 characters."""
MAX_ITEMS = 64
"""Most members of a list: unordered comparison is quadratic."""
MAX_NESTING = 8
"""Lists inside lists, `((1, 2), (3, 4))`."""

_PLAIN = re.compile(r"\s*([+-]?[0-9]{1,18})(?:\.0*)?\s*")
_NAN = frozenset({"nan", "+nan", "-nan", "not a number"})
_EMPTY_SET = re.compile(r"\\emptyset|\\\{\s?\\\}")
HEDGE = re.compile(
    rf"\b(?:{'|'.join(units.DOUBTS)}|give or take|or (?:so|more|less|fewer)|more or less)\b"
    r"|\?[\s*_$]*$|\b(?:is|are) (?:also )?possible\b|\^\s?\{?\s?\+|^[0-9]+(?:st|nd|rd|th)\b"
    r"|^[-+]?[0-9][0-9.,/]*\s?\\pm\s?[0-9][0-9.,/]*(?:\s[^\W\d_]+)?$",
    re.IGNORECASE,
)
"""What states no value: a doubt, a question, or a number with a tolerance."""


def read(raw: str, depth: int = 0) -> Value | None:
    """Read an answer; None when there is nothing to read or it is longer than `MAX_ANSWER_CHARS`.

    Linear in the length but for short, bounded steps; never raises on any text.
    """
    if (plain := _PLAIN.fullmatch(raw)) is not None:
        return Number(plain[1], Fraction(int(plain[1])))
    if len(raw) > MAX_ANSWER_CHARS:
        return None
    return _read(trim(clean(raw), is_item=depth > 0), depth)


def _read(text: str, depth: int) -> Value | None:
    if not any(char.isalnum() for char in text) and not _EMPTY_SET.fullmatch(text):
        return None
    if text.lower().strip(" $") in _NAN:
        return NaN(text)
    if HEDGE.search(text):
        return _words(text)
    if (based := _read_based(text)) is not None:
        return based
    if (shorter := without_explanation(text)) != text:
        return _read(trim(shorter), depth)
    if (simple := _read_choice(text, depth) or _read_clock(text) or _read_number(text)) is not None:
        return simple
    if depth < MAX_NESTING and (structured := _read_equation(text, depth) or _read_items(text, depth)) is not None:
        return structured
    return _read_measured_formula(text) or _read_text(text) or Formula(text, _read_quantity(text))


_REASON = re.compile(r",\s?(?:since|because|as|which|where|not|i\.e\.|namely)\b|\s(?:since|because)\b", re.IGNORECASE)
_APPROXIMATELY = re.compile(r"\s?(?:\\approx|\\simeq)(?![A-Za-z])\s?")
_DENIED = re.compile(rf"\b(?:{'|'.join(units.DENYING)})\b", re.IGNORECASE)
_NO_EXPLANATION = re.compile(
    rf"^\s?(?:\\?p?mod\b|base\b|or\b|for\b.{{0,40}}\band\b)|\b(?:{'|'.join(units.CONDITIONS)})\b", re.IGNORECASE
)


def without_explanation(text: str) -> str:
    """The text without one explanation: in parentheses at the end, behind `≈`, or a comma with since or because."""
    if (reason := _REASON.search(text)) is not None and reason.start() > 0:
        is_denied = "which" in reason[0].lower() and _DENIED.search(text, reason.end())
        return text if is_denied else text[: reason.start()]
    if text.endswith(")") and (left := _outside_parentheses(text)):
        return left
    if (about := _APPROXIMATELY.search(text)) is not None and about.start() > 0:
        left = text[: about.start()]
        return text[about.end() :] if is_name(left) or not about.end() < len(text) else left
    return text


def _outside_parentheses(text: str) -> str:
    """What stands before the parentheses that end a text, if they explain it; else nothing."""
    enclosed = balanced(text[::-1], ")(")[::-1]
    before, inner = text[: -len(enclosed)], enclosed[1:-1]
    left = before.rstrip()
    if not left or (before[-1] != " " and left[-1] not in "0123456789)}") or _NO_EXPLANATION.search(inner):
        return ""
    if _APPROXIMATELY.match(inner) or not is_formula(inner):
        return left
    # `18 (3 * 6)` says how 18 came about; `18 (3 + 1)` is a product.
    how = evaluate(trim(inner).replace("$", ""))
    return left if how is not None and how == evaluate(left.strip("$ ")) else ""


_CHOICE = re.compile(r"(?:(?:[Oo]ption|[Cc]hoice|[Aa]nswer)\s*)?(?:([A-J])|\(\s*([A-Ja-j])\s*\)|([A-J])\))[.:]?")
# `(a) + b` is a sum, `(b) -5` a choice.
_LABELLED = re.compile(
    r"(?:(?:[Oo]ption|[Cc]hoice)\s*)?(?:\(\s?([A-Ja-j])\s?\)|([A-J])[).:])\s(?![-+] |[*/^=(,;])(?!(?:and|or)\b)(.*)"
)


def _read_choice(text: str, depth: int) -> Choice | None:
    if (match := _CHOICE.fullmatch(text)) is not None:
        return Choice(text, next(letter for letter in match.groups() if letter).upper())
    if (match := _LABELLED.fullmatch(text)) is None or depth >= MAX_NESTING:
        return None
    value = read(match[3], depth + 1)
    return None if isinstance(value, Choice) else Choice(text, (match[1] or match[2]).upper(), value)


_CLOCK = re.compile(r"([0-9]{1,2})(?:\s?:\s?([0-9]{2}))?\s?([AaPp])\s?\.?\s?[Mm]\.?")


def _read_clock(text: str) -> Digits | None:
    match = _CLOCK.fullmatch(text)
    if match is None:
        return None
    return Digits(text, match[1] if match[2] in (None, "00") else f"{match[1]}:{match[2]}", match[3].lower())


_SIGN_AND_CURRENCY = re.compile(
    rf"(?P<sign>[+-]?)\s?(?:(?:US|A|C)?(?P<currency>[{''.join(CURRENCIES)}])|(?P<code>Rs\.?|USD|EUR|GBP|INR))\s?(?=[-+\d.\\({{])"
)
_ENDS_OF_NUMBER = "0123456789)]}!"
_WORD_UNIT_POWER = re.compile(r"(?<=[A-Za-z])\s?\^?\s?\{?[23]\}?$")


def _read_number(text: str) -> Number | None:
    """Read an exact number with its sign, currency, percent sign, magnitude and unit."""
    # `(100,200)` is a pair, though brackets may stand around a number.
    if "," in text and text[0] in "([":
        return None
    unit, body = "", text
    if (prefix := _SIGN_AND_CURRENCY.match(body)) is not None:
        unit = CURRENCIES.get(prefix["currency"] or "") or CANONICAL.get((prefix["code"] or "").rstrip("."), "")
        body = prefix["sign"] + body[prefix.end() :]
    elif body[-1] in CURRENCIES:
        unit, body = CURRENCIES[body[-1]], body[:-1].rstrip()
    tail = ""
    if body.endswith("%") or (number := evaluate(body)) is None:
        head, tail = (body[:-1], "%") if body.endswith("%") else _split_unit(body)
        number = evaluate(head.rstrip())
    measured = read_unit(tail, is_spaced=tail[:1] in (" ", "/", "%") or bool(unit)) if tail else (Fraction(1), "")
    if number is None or measured is None or (tail == "k" and not unit):
        return None
    scale, named = measured
    if unit:
        named = f"{unit}/{named.partition('/')[2]}".rstrip("/")
    return Number(text, number * scale, named == "%", named.removeprefix("%"))


def _split_unit(text: str) -> tuple[str, str]:
    """Split at the last character that can end a number: `5 cm^2` into `5` and ` cm^2`."""
    power = _WORD_UNIT_POWER.search(text)
    end = power.start() if power else len(text)
    last = max(text.rfind(char, 0, end) for char in _ENDS_OF_NUMBER)
    # `3. Conclusion` is a heading, not three conclusions.
    if last < 0 or text[last + 1 : last + 2] == ".":
        return text, ""
    return text[: last + 1], text[last + 1 :]


_BASE = rf"([0-9]{{1,2}}|{'|'.join(sorted(units.NUMBER_WORDS, reverse=True))})"
_BASED = re.compile(
    rf"\(?([0-9A-Fa-f]{{1,64}})\)?\s?(?:_\s?(?:\{{\s?(?:base[\s-])?{_BASE}\s?\}}|{_BASE})|,?\s(?:in\s)?\(?base[\s-]{_BASE}\)?)"
)
_BASE_WORDS = {word: number for number, word in enumerate(units.NUMBER_WORDS, 2)}


def _read_based(text: str) -> Digits | None:
    match = _BASED.fullmatch(text)
    if match is None:
        return None
    base = next(group for group in match.groups()[1:] if group)
    return Digits(text, match[1].lower(), str(_BASE_WORDS.get(base, base)))


_EQUALS = frozenset(("=",))
_ACCENTED = r"\\(?:bar|hat|tilde|vec)\s?(?:\{\s?\\?[A-Za-z]{1,8}\s?\}|\\[a-z]{2,8}|[A-Za-z])"
_LETTER = rf"(?:{_ACCENTED}|\\?[A-Za-z]|\\[a-z]{{2,8}})(?:_(?:\{{\w{{1,8}}\}}|\w))?'{{0,2}}"
_NAME = re.compile(
    # A letter, a function of letters or numbers, a tuple of letters, a segment, an angle, a quantity in words.
    rf"{_LETTER}(?:\s?\(\s?-?\w{{1,4}}(?:\s?,\s?-?\w{{1,4}}){{0,3}}\s?\))?|[fgh]\s?\^\s?\{{?-1\}}?\s?\(-?\w{{1,6}}\)"
    rf"|(?:P|Pr|E|Var)\s?\([^()]{{1,40}}\)|\(\s?{_LETTER}(?:\s?,\s?{_LETTER}){{1,4}}\s?\)"
    r"|(?:m\s?)?(?:\\angle|\\triangle|\\overline|\\overrightarrow)\s?\{?\s?[A-Z]{1,3}\s?\}?|[A-Z]{2,3}|\|[A-Z]{2}\||sum|max|min|ans"
    r"|(?=.{0,60}[A-Za-z]{4}|.{0,60}\s)[A-Za-z][A-Za-z '\-]{1,60}"
    # A ratio of numbers, lengths, areas or volumes.
    r"|[A-Za-z](?:\s?:\s?[A-Za-z]){1,5}|\\frac\{[A-Z]{2}\}\{[A-Z]{2}\}|[A-Z]{2}\s?[/:]\s?[A-Z]{2}|[SV](?:_\{?\w{1,4}\}?)?\s?[/:]\s?[SV](?:_\{?\w{1,4}\}?)?"
)
_MEMBERSHIP = re.compile(r"[A-Za-z]\s?\\in(?![A-Za-z])\s?")


_SUPERLATIVE = re.compile(r"^(?:the )?(?:least|max(?:imum)?|min(?:imum)?)\b")


def is_name(text: str) -> bool:
    """Whether a text names a value, so that `name = value` states it."""
    words = re.findall(r"[^\W\d_]{2,}", _SUPERLATIVE.sub("", text.strip().lower()))
    return units.ALTERING.isdisjoint(words) and "n't" not in text and _NAME.fullmatch(text.strip()) is not None


def _read_equation(text: str, depth: int) -> Value | None:
    """Read `name = value` or a chain of equal values; another equation is a formula."""
    if (membership := _MEMBERSHIP.match(text)) is not None:
        return read(text[membership.end() :], depth + 1)
    if "=" not in text or len(_split(GROUP.sub("", text), _ITEM_SEPARATORS)) > 1:
        return None
    parts = _split(text, _EQUALS)
    if len(parts) < 2:
        return None
    if len(parts) == 2 and is_name(parts[1]) and not is_name(parts[0]):
        parts.reverse()
    if len(parts) > 2 and is_name(parts[-2]):  # `1 = x = 0` says what x is
        parts = parts[-2:]
    name = parts[0] if is_name(parts[0]) else ""
    members = parts[1:] if name else parts
    values = tuple(value for part in members if (value := read(part, depth + 1)) is not None)
    if len(values) < len(members) or any(isinstance(value, Words) and value.is_prose for value in values):
        return None
    if any(isinstance(value, Words) and len(value.words) > LONGEST_PRODUCT for value in values[:-1]):
        return None
    plain = [value for value in values if isinstance(value, Number) and _PLAIN_NUMBER.fullmatch(value.text)]
    kinds = {(value.unit, value.is_percent) for value in plain}
    if len(plain) == len(values) and len(kinds) == 1 and len({value.number for value in plain}) > 1:
        return Relation(text)
    if name.startswith("(") and isinstance(value := values[-1], Items) and len(values) == 1:
        names = name.strip("( )").split(",")
        if value.brackets == "()" and len(names) == len(value.items):
            named = zip(names, value.items, strict=True)
            return Items(text, "", tuple(Equation(item.text, key.strip(), (item,)) for key, item in named))
    if any(map(_holds_unknown, values)) and (not name or any(_holds(value, name) for value in values)):
        return Relation(text) if is_formula(text) else None
    return Equation(text, name, values)


_PLAIN_NUMBER = re.compile(r"[-+$]{0,2}[0-9][0-9.,]*[^0-9+*/^\\-]*")
_COMMAND = re.compile(r"\\(?:begin|end)\s?\{[a-z]{1,16}\*?\}|\\[A-Za-z]+")
_UNKNOWN = re.compile(
    r"(?<![A-Za-z\\])(?!(?:e|i|ln|lg)(?![A-Za-z]))[A-Za-z]{1,3}(?![A-Za-z])|\\(?:alpha|beta|gamma|theta|phi|lambda|mu|omega)\b"
)


def _holds_unknown(value: Value) -> bool:
    """Whether a value holds a letter that stands for a number."""
    if isinstance(value, Items):
        return any(map(_holds_unknown, value.items))
    if isinstance(value, Words):
        return len(value.words) <= LONGEST_PRODUCT
    return isinstance(value, Formula) and any(
        letters.group() not in FUNCTIONS for letters in _UNKNOWN.finditer(value.text)
    )


def is_open(value: Value | None) -> bool:
    """Whether a value is an equation with unknowns, `2x = 42` or `y = 2x + 3`."""
    is_named = isinstance(value, Equation) and bool(value.name) and _holds_unknown(value.value)
    return is_named or isinstance(value, Relation)


def _holds(value: Value, name: str) -> bool:
    return len(name) == 1 and re.search(rf"(?<![A-Za-z\\]){name}(?![A-Za-z])", value.text) is not None


_OPENING = frozenset(("(", "[", "{", "\\{", "\\langle", "\\begin"))
_CLOSING = frozenset((")", "]", "}", "\\}", "\\rangle", "\\end"))
_MARK = re.compile(
    r"\\[{}]|\\(?:langle|rangle|begin|end)(?![a-z])|[()\[\]{},;]|(?<![A-Za-z])(?:and|or)(?![A-Za-z])|(?<![<>!=:\\])=(?!=)"
)
_ITEM_SEPARATORS = frozenset((",", ";", "and", "or"))
GROUP = re.compile(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))")
_ALL_NUMBERS = re.compile(r"[-+$]?[0-9][0-9.,%/]*(?:\s[-+$]?[0-9][0-9.,%/]*){1,200}")
_ALTERNATIVES = re.compile(r"\s?\|{1,2}\s?")
_EITHER = re.compile(r"\(?[A-J]\)?|[^\W\d_]{2,20}")


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
    """Split a list: at commas, semicolons, `and`, `or`, one `|`, and the slash between words or choices."""
    pieces = _split(text, _ITEM_SEPARATORS)
    if len(pieces) == 1:
        pieces = _ALTERNATIVES.split(text)
        if len(pieces) != 2 or not all(pieces):
            pieces = text.split("/")
            if len(pieces) < 2 or not all(_EITHER.fullmatch(piece.strip()) for piece in pieces):
                return [text]
    return pieces


def _read_items(text: str, depth: int) -> Value | None:
    """Read a bracketed or bare list; brackets around one value mean nothing."""
    if _EMPTY_SET.fullmatch(text):
        return Items("\\emptyset", "{}", ())
    if (union := _read_union(text)) is not None:
        return union
    parts = text.split(":")
    if len(parts) > 2 and all(part.strip() for part in parts):  # a ratio, in its parts of the first
        return _items(text, "(:)", [f"\\frac{{{part}}}{{{parts[0]}}}" for part in parts], depth)
    if (opened := _unwrap(text)) is not None:
        brackets, inner = opened
        # Inside brackets a comma separates, unless others with a space after them show that it groups digits.
        pieces = _split_items(GROUP.sub("", inner) if ", " in inner or ";" in inner else inner)
        if len(pieces) == 1 and brackets != "[)" and brackets != "(]":
            return read(pieces[0], depth + 1)
        return _items(text, brackets, pieces, depth)
    pieces = _split_items(GROUP.sub("", text))
    if len(pieces) == 1 and _ALL_NUMBERS.fullmatch(text):
        pieces = text.split()
    pieces = [item for piece in pieces for item in _both_signs(piece)]
    return _items(text, "", pieces, depth) if len(pieces) > 1 else None


_ONE_SIDED = re.compile(r"\(?([A-Za-z])\s?(<|>|\\(?:le|ge)q?(?![A-Za-z]))\s?([^<>=,]{1,60}?)\)?")
_RAYS = {"<": "(-\\infty, {})", "\\le": "(-\\infty, {}]", ">": "({}, \\infty)", "\\ge": "[{}, \\infty)"}


def _read_union(text: str) -> Formula | None:
    r"""Read `x < 1 or x > 2` as the union of intervals."""
    pieces = [_ONE_SIDED.fullmatch(piece) for piece in _split(text, frozenset(("or",)))]
    sides = [piece.groups() for piece in pieces if piece is not None]
    if not 1 < len(sides) == len(pieces) or len({name for name, _, _ in sides}) > 1:
        return None
    return Formula(
        " \\cup ".join(_RAYS[relation.removesuffix("q")].replace("{}", bound) for _, relation, bound in sides)
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
    steps = ((match[0] in _OPENING) - (match[0] in _CLOSING) for match in _MARK.finditer(text))
    depths = [*accumulate(steps, initial=0)]
    return min(depths) == depths[-1] == 0


_RUN_OF_LETTERS = re.compile(r"[^\W\d_]+")
FUNCTIONS = frozenset((
    "sin", "cos", "tan", "cot", "sec", "csc", "log", "ln", "exp", "max", "min", "gcd", "lcm", "mod", "det", "arg",
    "deg", "sqrt", "degrees", "arcsin", "arccos", "arctan",
))  # fmt: skip
_SHORT_WORDS = frozenset((
    "is", "it", "we", "so", "he", "she", "the", "are", "was", "has", "had", "for", "his", "her", "get", "got", "can",
    "of", "to", "be", "by", "as", "at", "if", "an", "on", "no", "in", "up", "me", "my", "us", "or", "and", "not",
    "all", "one", "two", "per", "out", "you", "who", "its", "him", "did", "new", "now", "red", "six", "ten", "but",
))  # fmt: skip
LONGEST_PRODUCT = 3
"""`abc` may be a product of three variables; longer ones are words, which no engine compares."""
_MATHEMATICS = re.compile(r"[0-9\\^_=<>+*/|]")
_DIFFERENCE_OR_PRODUCT = re.compile(r"[A-Za-z)]\s?[-(]\s?[A-Za-z(]|^-\s?[A-Za-z(]")
"""What else may be mathematics where no run of letters is a word: `p - q`, `a(b - c)`, `-x`."""
_OPERATION = re.compile(r"[\\^_=<>+*/|]")
_TRIGONOMETRY = re.compile(r"\\?(?:sin|cos|tan|cot|sec|csc)")


def is_formula(text: str) -> bool:
    """Whether no run of letters is a word, LaTeX commands and function names aside."""
    return all(
        run in FUNCTIONS or (len(run) <= LONGEST_PRODUCT and run.lower() not in _SHORT_WORDS)
        for run in _RUN_OF_LETTERS.findall(_COMMAND.sub(" ", text))
    ) or ("=" in text and is_name(text.partition("=")[0]) and is_formula(text.partition("=")[2]))


_AFTER_PI = re.compile(r"(.*\\pi)(\s.*)")


def _read_measured_formula(text: str) -> Formula | None:
    r"""Drop a unit behind a formula, `10\sqrt{3} cm`; an angle inside a function belongs to it."""
    if (after := _AFTER_PI.match(text)) is not None:
        head, tail = after[1], after[2]  # `12\\pi cm`
    else:
        head, tail = _split_unit(text)
    head = head.rstrip()
    if len(tail.strip()) < 2 or not _OPERATION.search(head) or not is_formula(head) or _TRIGONOMETRY.search(head):
        return None
    measured = read_unit(tail, is_spaced=tail[0] == " ")
    if measured is None or measured[0] != 1:
        return None
    # `\\sqrt{2} abc` may be a product; a unit by name or longer words are not.
    return Formula(head) if measured[1] or not is_formula(tail) else None


_QUANTITY = re.compile(r"(-?[0-9][0-9.,]{0,30})([mghsLlk])")


def _read_quantity(text: str) -> Number | None:
    match = _QUANTITY.fullmatch(text)
    number = evaluate(match[1]) if match else None
    if match is None or number is None:
        return None
    scale = SCALES.get(match[2], Fraction(1))
    return Number(text, number * scale, unit=CANONICAL.get(match[2], ""))


_ARTICLE = re.compile(r"\b(?:the|an|a)\s(?=\w)")


def _read_text(text: str) -> Words | None:
    value = _words(text)
    if (value.is_prose or _DIFFERENCE_OR_PRODUCT.search(text)) and is_formula(text):
        return None
    return value


def _words(text: str) -> Words:
    has_mathematics = _MATHEMATICS.search(text) is not None or not FUNCTIONS.isdisjoint(_RUN_OF_LETTERS.findall(text))
    words = " ".join(text.lower().rstrip("!").split())
    return Words(text, _ARTICLE.sub("", words, count=1), is_prose=has_mathematics)
