"""Normalises spelling: Unicode to ASCII mathematics, without LaTeX layout."""

from __future__ import annotations

import re
import unicodedata

_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "0123456789+-n")
_SUPERSCRIPT_RUN = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ]{1,64}")
_VULGAR_FRACTION = re.compile("[¼½¾⅐-⅞]")
_ROOT_SIGN = re.compile(r"√\s{0,4}(\([^()]{1,64}\)|[0-9.]{1,64}|[A-Za-z])")

_SYMBOLS = {
    "−": "-", "–": "-", "‐": "-", "‑": "-", "‒": "-", "﹣": "-", "－": "-",
    "×": "*", "✕": "*", "⋅": "*", "·": "*", "∙": "*", "∗": "*", "÷": "/", "∕": "/", "⁄": "/",
    "π": "\\pi ", "∞": "\\infty ", "∅": "\\emptyset ", "⌀": "\\emptyset ", "∪": "\\cup ", "∩": "\\cap ", "∈": "\\in ",
    "≤": "\\le ", "≥": "\\ge ", "≠": "\\ne ", "≈": "\\approx ", "±": "\\pm ", "°": "^\\circ ", "º": "^\\circ ",
    "′": "'", "’": "'", "‘": "'", "“": '"', "”": '"', "…": "...", "。": ".", "‰": "\\permil ",
}  # fmt: skip
"""Characters with one ASCII or LaTeX spelling; the long dash is punctuation, so it is not here."""


class _Translation(dict[int, str]):
    """Spellings by code point for `str.translate`; computed on demand and not kept, so that it cannot grow."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        category = unicodedata.category(char)
        if category == "Nd":
            return str(unicodedata.decimal(char))
        if category in ("Zs", "Zl", "Zp"):
            return " " if category == "Zs" else "\n"
        # Format characters (right-to-left marks, zero-width spaces), controls, lone surrogates, private use.
        if category.startswith("C"):
            return ""
        plain = unicodedata.normalize("NFKC", char)
        return plain if plain.isascii() else char


_TRANSLATION = _Translation(
    {code: chr(code) for code in range(128) if chr(code).isprintable()}
    | {ord("\n"): "\n", ord("\r"): "\n", ord("\t"): " ", ord("\v"): " ", ord("\f"): " "}
    | {ord(char): plain for char, plain in _SYMBOLS.items()}
)
_ASCII_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def to_ascii(text: str) -> str:
    r"""Spell digits, operators, fractions, roots and powers of any script in ASCII or LaTeX; drop what is invisible.

    `٤٢` is 42, `½` is 1/2, `x²` is x^{2}, `√2` is \sqrt{2}, `−` is -. Control and format characters and lone
    surrogates vanish; letters stay. Linear in the length.
    """
    if text.isascii():
        return text.translate(_TRANSLATION) if _ASCII_CONTROL.search(text) else text
    text = _SUPERSCRIPT_RUN.sub(lambda run: f"^{{{run[0].translate(_SUPERSCRIPTS)}}}", text)
    text = _VULGAR_FRACTION.sub(_spell_fraction, text)
    text = text.translate(_TRANSLATION)
    # `√` has no compatibility form, so it survived the table.
    return _ROOT_SIGN.sub(lambda root: f"\\sqrt{{{root[1].strip('()')}}}", text) if "√" in text else text


def _spell_fraction(match: re.Match[str]) -> str:
    top, _, bottom = unicodedata.normalize("NFKC", match[0]).partition("⁄")
    return f" {top}/{bottom}"


_GROUPING = re.compile(r"(?<=[0-9])(?:\{,\}|,\s?\\!|\\[,;:!])\s?(?=[0-9]{3}(?![0-9]))")
"""LaTeX between groups of digits, `1\\,000` and `1,\\! 000`."""
_LAYOUT = re.compile(
    r"\\(?:left|right|[bB]igg?[lrm]?|displaystyle|textstyle|limits|nolimits|hfill|allowbreak)(?![A-Za-z])\.?"
    r"|\\(?:[lL]arge|LARGE|[hH]uge|small|newline|therefore|boldmath)(?![A-Za-z])|\\\\\s*$"
    r"|(?<!\\)\\!|\\(?:text)?color\s?\{[^{}]{0,32}\}|\\[vh]?phantom\s?\{[^{}]{0,200}\}"
)
_SPACING = re.compile(
    r"(?<!\\)\\(?:[,;:> ]|q?quad|(?:thinspace|enspace|hspace\{[^{}]{0,16}\})(?![A-Za-z]))|~"  # `\quadx` is a slip
)
_DELIMITER = re.compile(r"(?<!\\)\\[()\[\]]")
_TEXT = re.compile(
    r"\\(?:text(?:bf|it|rm|normal|sf|tt)?|mathrm|mathbf|mathit|mathsf|bm|boldsymbol|mbox|hbox|textup|underline)\s?\{([^{}]{0,200})\}"
)
_DEGREES = re.compile(r"\^\s?(?:\{\s?\\(?:circ|degree)\s?\}|\\(?:circ|degree)(?![A-Za-z]))|\\degree(?![A-Za-z])")
_FRACTION_NAME = re.compile(r"\\[dtc]frac(?![A-Za-z])")
_ROOT_ARGUMENT = re.compile(r"\\sqrt\s{0,2}([0-9.]{1,64}|[A-Za-z])(?![A-Za-z])")
_BEFORE_ARGUMENT = re.compile(r"(?:\^|\\sqrt|(?<![A-Za-z])sqrt)\s?(?=\()")
_ROOT_PLAIN = re.compile(r"(?<![\\A-Za-z])sqrt(?=\s?\{)")
_EXPONENT = re.compile(r"\^\s?(-?[0-9]{2,64}(?:\.[0-9]{1,64})?|-[0-9])")
_GROUP_COMMA = re.compile(r"\{\s?,\s?\}")
_COMMANDS = {
    "times": " * ", "cdot": " * ", "ast": "*", "div": "/", "leq": "\\le ", "geq": "\\ge ", "neq": "\\ne ",
    "leqslant": "\\le ", "geqslant": "\\ge ", "lt": "<", "gt": ">", "varnothing": "\\emptyset ", "minus": "-",
    "dollar": "$", "lbrace": "\\{", "rbrace": "\\}", "infin": "\\infty ", "and": " and ", "or": " or ", "lor": " or ",
    "land": " and ", "lbrack": "[", "rbrack": "]", "colon": ":", "euro": "€", "pounds": "£", "textdollar": "$",
    "texteuro": "€", "cdots": "...", "ldots": "...", "dots": "...", "textpercent": "%", "percent": "%",
}  # fmt: skip
_COMMAND = re.compile(rf"\\({'|'.join(sorted(_COMMANDS, key=len, reverse=True))})(?![A-Za-z])")
_WORD_SYMBOL = re.compile(r"(?<![\\A-Za-z])(?:pi|infinity)(?![A-Za-z])")
_WORD_SYMBOLS = {"pi": "\\pi ", "infinity": "\\infty "}
_POWER = re.compile(r"(?<=[\w)\]}])(?:\*\*| \*\* )(?=[\w({\\-])")
"""Python's `x**2`; Markdown's `**` has a space on one side."""
_SPACES = re.compile(r"\s+")
_TEXT_NESTING = 3
r"""Layers of `\text{\textbf{B}}` that are removed."""


def group_digits(text: str) -> str:
    """Spell LaTeX between groups of digits as a comma."""
    return _GROUPING.sub(",", text)


_DECIMAL_COMMA = re.compile(r"(?<![0-9.,])([0-9]{1,300}),([0-9]{1,300})(?![0-9]|[.,][0-9])")
_POINTS = re.compile(
    r"(?<![0-9.,])[0-9]{1,3}(?:\.[0-9]{3}){1,99}(?=,[0-9])|(?<![0-9.,])[0-9]{1,3}(?:\.[0-9]{3}){2,99}(?![0-9.])"
)


def point_decimals(text: str) -> str:
    """Spell decimal commas as points: `1,5` is 1.5, `1.234,5` is 1234.5; several commas group digits, `1,234,567`."""
    text = _POINTS.sub(lambda groups: groups[0].replace(".", ""), text.replace("{,}", ","))
    return _DECIMAL_COMMA.sub(r"\1.\2", text)


_RELATION = re.compile(r"(<|>|:|(?<=\s)!(?==)|\\(?:le|ge|ne|not)(?![A-Za-z]))\s*=(?!=)")
_RELATIONS = {
    ":": "=",
    "<": "\\le ",
    "\\le": "\\le ",
    ">": "\\ge ",
    "\\ge": "\\ge ",
    "!": "\\ne ",
    "\\ne": "\\ne ",
    "\\not": "\\ne ",
}
"""Relations that are written with an equals sign, `x <= 5`, `x\\le=5` and `x \\not= 5`: none of them says `x = 5`."""


def clean(text: str) -> str:
    r"""Give an answer one spelling: no layout, no math delimiters, `\frac{1}{2}` for all its short forms, `*` and `/`.

    The argument is an answer, not a completion: bound its length first. Currency signs and `%` stay for the reader.
    """
    text = to_ascii(text)
    if "\\" in text:
        text = _clean_latex(text)
    text = _RELATION.sub(lambda relation: _RELATIONS[relation[1]], text)
    text = _strip_dollars(_SPACES.sub(" ", text).strip())
    text = _braced(_POWER.sub("^", _GROUP_COMMA.sub(",", text)))
    text = _EXPONENT.sub(r"^{\1}", _ROOT_PLAIN.sub(r"\\sqrt", text))
    text = _WORD_SYMBOL.sub(lambda word: _WORD_SYMBOLS[word[0]], text)
    return text.strip()


def _with_braced_fractions(text: str) -> str:
    r"""Spell `\frac12`, `\frac1{2}` and `\frac {1} 2` with braces and no space."""
    pieces = text.split("\\frac")
    for place in range(1, len(pieces)):
        piece = pieces[place].lstrip()
        if (top := _argument(piece)) and (bottom := _argument(piece[len(top) :].lstrip())):
            rest = piece[len(top) :].lstrip()[len(bottom) :]
            pieces[place] = "".join(part if part[0] == "{" else f"{{{part}}}" for part in (top, bottom)) + rest
    return "\\frac".join(pieces)


def _argument(text: str) -> str:
    """The digit, or the balanced braces, that a text begins with; nothing where it does with neither."""
    return text[0] if text[:1].isdigit() else balanced(text, "{}")


def balanced(text: str, brackets: str) -> str:
    """The brackets that a text begins with, and all that they enclose; nothing where it begins with none."""
    depth = 0
    for end, char in enumerate(text):
        depth += (char == brackets[0]) - (char == brackets[1])
        if depth <= 0:
            return text[: end + 1] if end else ""
    return ""


_MAX_ARGUMENTS = 16


def _braced(text: str) -> str:
    """Spell the parentheses of plain exponents and roots as braces: `2^(2(n+1))` is 2^{2(n+1)}."""
    start = 0
    for _ in range(_MAX_ARGUMENTS):
        if (before := _BEFORE_ARGUMENT.search(text, start)) is None:
            break
        start = before.end()
        if inner := balanced(text[start:], "()")[1:-1]:
            text = f"{text[:start]}{{{inner}}}{text[start + len(inner) + 2 :]}"
    return text


def unwrap_text(text: str) -> str:
    r"""Replace `\text{…}` and its like by what they hold."""
    for _ in range(_TEXT_NESTING):
        text, count = _TEXT.subn(r" \1 ", text)
        if not count:
            break
    return text


def _clean_latex(text: str) -> str:
    text = _DELIMITER.sub("", group_digits(text))
    text = _SPACING.sub(" ", _LAYOUT.sub("", text))
    text = text.replace("\\%", "%").replace("\\&", "&").replace("\\#", "#").replace('\\"', '"')
    text = unwrap_text(text)
    text = _COMMAND.sub(lambda command: _COMMANDS[command[1]], _DEGREES.sub(" degrees ", text))
    if "frac" in text:
        text = _FRACTION_NAME.sub(r"\\frac", text)
        text = _with_braced_fractions(text)
    return _ROOT_ARGUMENT.sub(r"\\sqrt{\1}", text)


def _strip_dollars(text: str) -> str:
    """Drop math delimiters; a single `$` before a number is a currency and stays."""
    while len(text) > 1 and text[0] == "$" and text[-1] == "$":
        text = text[1:-1].strip()
    text = text.replace("\\$", "$")
    return text if text.count("$") == 1 else text.replace("$", "")


_EDGE = ' \t\n*_`"'
"""White space, markdown emphasis and quotes around an answer; a lone `'` is a prime or a foot."""
_LEADING = re.compile(r"(?:=>|->|[=:~∴⇒→⟹])+")
_WORDED_SIGN = re.compile(r"^(?:an?\s)?(?:minus|negative)\s{1,4}(?=\\?[$€£¥]?\s?\.?[0-9]|\\frac|\\sqrt)", re.IGNORECASE)
_ENDING = re.compile(
    r"[\s.]*(?:\$|\\[(\[])?\s*(?:\\(?:checkmark|blacksquare|square|Box|qed|qedsymbol)(?![A-Za-z])"
    r"|[\u2610-\u2612\u2705\u2713\u2714\u25a0\u25a1\u25fc\u25fb\u220e\ufe0f\U0001f300-\U0001faff]|\bQ\.?E\.?D\b\.?)\s*(?:\$|\\[)\]])?\s*$"
)
"""A mark of the end of a proof, a tick or a picture."""
_MAX_ENDINGS = 4
_GOES_ON = re.compile(
    r"\.[0-9]+$|[\w)}\]]\s?[-+*]\s?[\w({\\]|;|,(?![0-9]{3}(?![0-9]))|[-+*/=<>(]\s?$"  # decimals, a sum, a list
)
"""What three dots go on with, `0.333...`, `1, 2, 3...`; behind anything else they end a sentence."""


def trim_end(text: str) -> str:
    """Drop what ends a text and says nothing: a tick, a picture, the end of a proof."""
    for _ in range(_MAX_ENDINGS):
        if (ending := _ENDING.search(text[-64:])) is None:
            break
        text = text[: len(text) - len(text[-64:]) + ending.start()]
    return text


def trim(text: str, *, is_item: bool = False) -> str:
    """Strip emphasis, quotes and sentence punctuation around a cleaned answer, but not `!`, `?` and what goes on."""
    text = trim_end(text)
    if text.endswith(" *"):  # an operator, not the end of emphasis
        return text
    text = text.strip(_EDGE)
    if len(text) > 2 and text[0] == text[-1] == "'":
        text = text[1:-1]
    while (match := _LEADING.match(text)) is not None:
        text = text[match.end() :].lstrip(_EDGE)
    text = _WORDED_SIGN.sub("-", text)
    while text and text[-1] in ".,;:\\" and not (text.endswith("...") and (is_item or _GOES_ON.search(text[:-3]))):
        text = text[:-1].rstrip(_EDGE)
    return text.removeprefix("\\approx").lstrip()
