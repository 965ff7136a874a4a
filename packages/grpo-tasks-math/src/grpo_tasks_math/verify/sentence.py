"""The final answer of free text: phrases, final formulas and equations, last numbers."""

from __future__ import annotations

import re

from grpo_tasks_math.verify.normalise import group_digits, unwrap_text
from grpo_tasks_math.verify.reader import contradicts, read
from grpo_tasks_math.verify.units import CHANGES, SHORT_MAGNITUDES
from grpo_tasks_math.verify.values import Choice, Contradiction, Equation, Value, Words

SENTENCE_CHARS = 16_384
"""Characters at the end that the rules for free text examine, since they use regular expressions."""
MAX_TRIES = 8
"""Candidates that one rule tries, from the last."""

_CALCULATOR = re.compile(r"<<[^<>\n]{0,200}>>")
"""GSM8K's annotations, `48/2 = <<48/2=24>>24`."""

_BOLD = re.compile(r"(?<![0-9)])(?<!(?<![A-Za-z])[A-Za-z])\*\*|\*\*(?![0-9(.-])|\*\*(?=\.?(?:\s|$))")
"""Markdown's `**4**`, not the power `2**3` or `x**2`."""
_HEDGE = re.compile(
    r"(?<=[0-9$*%])(?:,\s?|\s)\(?(?:or\s)?(?:possibly|maybe|perhaps)\s(?=[-$*\\]{0,3}[0-9])", re.IGNORECASE
)
"""Joins another candidate, `18, possibly 19`."""


def read_sentence(text: str) -> Value | None:
    """Read the answer that free text ends with, by the first rule that finds one; see `extract`."""
    text = text[-SENTENCE_CHARS:].strip()
    if "<<" in text:
        text = _CALCULATOR.sub("", text)
    if "**" in text:
        text = _BOLD.sub("", text)
    if "\\" in text or "{" in text:
        text = unwrap_text(group_digits(text)).strip()
    text = _HEDGE.sub(" or ", text)
    text = without_denied(text)
    for rule in (after_phrase, _whole, _final_formula, _final_equation, _last_number, _last_choice, _words):
        if (value := rule(text)) is not None:
            return value
    return None


_PHRASE = re.compile(
    r"\banswer\b(?:[*_ \t)]{0,8}[:=]|[^\n.:=]{0,60}?\b(?:is|are|was|equals)\b[*_ \t]{0,4}:?|[*_ \t:]{0,8}(?=\n))"
    r"[*_\s]{0,8}",
    re.IGNORECASE,
)
_FINAL = re.compile(r"\b(?:final|correct|right|actual) answer\b", re.IGNORECASE)
_REPLACEMENT = re.compile(
    rf"{_PHRASE.pattern}"
    r"|\b(?:it(?:'s| is| equals)|(?<!\b[A-Za-z]\s)(?:should|must)(?:\s\w{2,10}ly)? (?:be|have been|equal))[*_\s]{1,8}",
    re.IGNORECASE,
)
"""Behind a retraction, "it is" also states an answer, unlike `x should be 3`."""
_RETRACTION = (
    r"(?:^|[.!?;:,\n)$\]}—-])[\s*_$]{0,4}(?:but\s)?"
    r"(?:(?:wait|actually|sorry|oops|hmm{0,8}|correction|hold on|nope|no(?=\s?[,.:;!—-]))\b[\s,.:;!—-]{1,4}){1,4}"
)
"""Begins a sentence: "no doubt" and "a common mistake" retract nothing."""
_RETRACTED = re.compile(
    rf"{_RETRACTION}(?:[^0-9.!?;:\n]{{0,40}}?(?:{_REPLACEMENT.pattern})"
    r"|(?<=[,:—-]\s)(?=[$*_(\\]{0,3}-?\$?[0-9][0-9.,/]{0,20}[$*_)\\]{0,3}[.!]?\s{0,4}(?:$|\n)))",
    re.IGNORECASE,
)
"""A retraction up to the value that it puts in place, "No, it is 5" or "No, 5"."""
_ADMISSION = re.compile(
    rf"(?:{_RETRACTION}(?:that|this|it)(?:(?:'s|\sis|\swas)\s(?:\w{{2,12}}ly\s)?(?:wrong|incorrect|not\s(?:right|correct))"
    r"|\s(?:isn't|wasn't)\s(?:right|correct))"
    r"|(?:^|[.!?;:,\n])[\s*_]{0,4}(?:I(?:'ve|\shave)?\smade\san?\s(?:\w{2,12}\s)?(?:mistake|error)|I\swas\s(?:wrong|mistaken)"
    r"|my\s(?:mistake|bad)))\b(?!\s?\?)",
    re.IGNORECASE,
)
"""Says that the answer before was wrong; another may follow sentences later."""
_CLAUSE_CHARS = 300
"""Longest clause after "answer is" or after the last `=`; an answer is shorter."""
_CLAUSE_END = re.compile(
    r"[,;]?\s(?:because|since|so|which|where|as|when|for|not|but|after|if|given|that|we|therefore|thus|i\.e\.)\b"
    r"|[.;:?!](?=\s|$)|\s\((?=[A-Za-z]{2})|,\s(?=[A-Za-z]{2,20}\s)(?!(?:and|or)\s)"
)


def after_phrase(text: str) -> Value | None:
    """Read what follows the last phrase such as "answer is" that an answer follows, or what replaces it behind."""
    found = _last_stated(text, _PHRASE)
    return None if found is None else retraction(text[found[1] :]) or found[0]


def _last_stated(text: str, phrase: re.Pattern[str]) -> tuple[Value, int] | None:
    """Return the answer behind the last phrase that one follows, and the end of the phrase."""
    matches = list(phrase.finditer(text))[-MAX_TRIES:]
    for match in reversed(matches):
        clause = _clause(text, match.end())
        for candidate in (*_clauses(clause), _leading_numbers(clause)):
            value = read(candidate)
            if value is None or (isinstance(value, Words) and value.is_prose):
                continue
            # "The answer is clear. 40 + 2 = 42": words count only when no number follows.
            if isinstance(value, Words) and any(char.isdigit() for char in text[match.end() :]):
                break
            return value, match.end()
    return None


def stated(text: str) -> list[str]:
    """Return what a text says its answer is, as it stands: what follows the last "answer is", or the whole text."""
    text = text[-SENTENCE_CHARS:].strip()
    *_, phrase = (None, *_PHRASE.finditer(text))
    return [*(_clauses(_clause(text, phrase.end())) if phrase else ()), text]


def _clauses(clause: str) -> tuple[str, str]:
    """Return a clause, and what stands before its first subordinate one."""
    return clause, _CLAUSE_END.split(clause, maxsplit=1)[0]


def correction(text: str) -> Value | None:
    """Read what a text behind a box puts in its place: a "final answer", or a retraction; words correct nothing."""
    match = _FINAL.search(text := without_denied(text[-SENTENCE_CHARS:]))
    found = _last_stated(text[match.start() :], _PHRASE) if match else None
    return retraction(text) if found is None or isinstance(found[0], Words) else found[0]


def retraction(text: str) -> Value | None:
    """Read what a text behind an answer puts in its place: "No, it is 5", "I made a mistake. It should be 5"."""
    text = without_denied(text[-SENTENCE_CHARS:])
    *_, admission = (None, *_ADMISSION.finditer(text))
    if admission is not None:
        rest = text[admission.end() :]
        found = _last_stated(rest, _REPLACEMENT)
        if (value := found[0] if found else _final_equation(rest)) is not None and not _is_worded(value):
            return value
    for match in reversed(list(_RETRACTED.finditer(text))[-MAX_TRIES:]):
        clause = _clause(text, match.end())
        for candidate in (*_clauses(clause), _leading_numbers(clause)):
            if (value := read(candidate)) is not None and not _is_worded(value):
                return value
    return None


def _is_worded(value: Value) -> bool:
    """Whether a value is words, or an equation such as `easy to see with x = 5`."""
    return isinstance(value, Words) or (isinstance(value, Equation) and " " in value.name)


def _clause(text: str, start: int) -> str:
    """Return the line at `start`, or the displayed formula that begins there."""
    for opening, closing in (("$$", "$$"), ("\\[", "\\]")):
        if text.startswith(opening, start):
            end = text.find(closing, start + 2)
            if end >= 0:
                return text[start + 2 : end]
    return text[start : start + _CLAUSE_CHARS].partition("\n")[0].rstrip("*_ ").removesuffix("!")


_ONLY_NUMBERS = re.compile(r"[-+$0-9.,;%/ \n]+")
_WHOLE_CHARS = 300
"""Longest text that may be an answer as a whole."""
_FEW_WORDS = 2
"""`Vitamin C` is words; `I think C` ends with a choice."""


def _whole(text: str) -> Value | None:
    """Read a text that is nothing but an answer: one line, or numbers on several."""
    if len(text) > _WHOLE_CHARS or ("\n" in text and not _ONLY_NUMBERS.fullmatch(text)):
        return None
    value = read(text)
    return None if isinstance(value, Words) and (value.is_prose or text.count(" ") >= _FEW_WORDS) else value


def _words(text: str) -> Value | None:
    """Read a short text of words, the answer where nothing else was."""
    return None if len(text) > _WHOLE_CHARS or "\n" in text else read(text)


_MATH_DELIMITERS = (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"))
_JOINED = re.compile(r"(?:,|;|\b(?:or|and)\b)\s{0,3}(?:(?:or|and)\s{1,3})?$")
_JOINED_NAME = re.compile(r"(?:,|;|\b(?:or|and)\b)\s{0,3}(?:(?:or|and)\s{1,3})?[A-Za-z]\w{0,3}\s{0,3}$")


def _final_formula(text: str) -> Value | None:
    r"""Read the math span that ends the text, `$…$`, `$$…$$`, `\(…\)` or `\[…\]`, with the spans it is joined to."""
    text = text.rstrip("*_ .")
    delimiters = next((pair for pair in _MATH_DELIMITERS if text.endswith(pair[1])), None)
    if delimiters is None:
        return None
    opening, closing = delimiters
    spans: list[str] = []
    while len(spans) < MAX_TRIES and text.endswith(closing):
        end = len(text) - len(closing)
        start = text.rfind(opening, 0, end)
        if start < 0 or (opening == "$" and "\n" in text[start:end] and "\\begin" not in text[start:end]):
            break
        spans.append(text[start + len(opening) : end])
        joint = _JOINED.search(text, max(0, start - 16), start)
        text = text[: joint.start()].rstrip() if joint else ""
    return _mathematics(" or ".join(reversed(spans)))


def _mathematics(text: str) -> Value | None:
    value = read(text)
    return None if isinstance(value, Words) else value


_EQUALS = re.compile(r"(?<![<>!])(?<!\\le)(?<!\\ge)(?<!\\ne)(?<!\\[lgn]eq)(?<!\\not)=(?!=)")


def _final_equation(text: str) -> Value | None:
    """Read what follows the last `=` of the last line, if it is an answer up to its end; `x = 1 or x = 2` is two."""
    *before, tail = _EQUALS.split(text[text.rfind("\n") + 1 :])
    if not before or len(tail) > _CLAUSE_CHARS:
        return None
    if contradicts([*before, tail]) and (last := read(tail)) is not None:
        return Contradiction(text, "", last)
    values = [tail]
    for part in before[:0:-1]:
        joint = _JOINED_NAME.search(part[-16:])
        if joint is None or len(values) == MAX_TRIES:
            break
        values.append(part[: max(0, len(part) - 16) + joint.start()])
    return _mathematics(" or ".join(reversed(values)))


_DIGITS = r"(?:(?>[0-9]{1,3}(?:,[0-9]{3})++(?![0-9])|[0-9]++)(?:\.[0-9]++)?(?:[eE][-+]?[0-9]{1,4}(?!\w))?|\.[0-9]++)"
_ROOT_OR_FRACTION = (
    r"(?:\\[dtc]?frac\s?(?:\{[^{}]{1,60}\}|[0-9])\s?(?:\{[^{}]{1,60}\}|[0-9])|\\sqrt(?:\[[0-9]\])?\{[^{}]{1,60}\})"
)
_ELEMENT = (
    rf"\\?[$€£¥]?\s?(?:{_DIGITS}(?:\s?{_ROOT_OR_FRACTION})?|{_ROOT_OR_FRACTION})(?!st\b|nd\b|rd\b|th\b)(?:\s?\\?%)?"
)
# A minus is a sign where it touches the number or follows a word; a dash that begins a line is a bullet. Only Latin
# letters make `x5` a name: Chinese has no spaces.
_START = (
    r"(?:(?<![A-Za-z0-9^_.{\\)\]}%$+*/-])"
    r"|(?<![A-Za-z0-9^_.{\\)\]}%])(?:[-+](?=[$€£¥.\\0-9])|(?<=[^\s\w)\]}] )- ?|(?<=[A-Za-z] )- ?))"
)
_JOIN = (
    r"(?:[ \t]{0,3}(?:[-+*/^]|\*\*)[ \t]{0,3}-?|[ \t]{1,3}"
    r"|\s{0,3}(?:,|;|&|\band\b|\bor\b)\s{0,3}(?:(?:and|or)\s{1,3})?-?)"
)
_NUMBERS = re.compile(rf"{_START}{_ELEMENT}(?:{_JOIN}{_ELEMENT}){{0,63}}")
_NEAR_END = 400
"""Characters of the end in which the last number is looked for before the whole window."""

_RELATION = re.compile(r"(?:^|(?<=[\s($]))[A-Za-z]\s?(?:[<>!]=|[<>]|\\(?:le|ge|ne|leq|geq|neq)(?![A-Za-z]))\s?$")
"""A variable and its relation before a number: `x >= 5` is no 5."""
_DENIAL = re.compile(r"(?:\b(?:not|never|cannot)\b|n't\b)(?:[\s}~]{1,8}|\b(?:be|equals?|to)\b){0,8}", re.IGNORECASE)
_DENIED = re.compile(
    rf"(?:\$[^$\n]{{1,60}}\$(?![0-9])|\\\([^\n]{{1,60}}?\\\)|-?{_ELEMENT}(?:{_JOIN}{_ELEMENT}){{0,63}}|\(?[A-J]\)?(?![\w']))"
    r"(?:,?\s{1,4}but(?:\srather)?\b)?"
)


_ENDS_WITH_DENIAL = re.compile(rf"(?:{_DENIAL.pattern})[\s$(*\\\[]{{0,4}}$", re.IGNORECASE)


def denies_next(text: str) -> bool:
    """Whether a text says of what follows that it is not so."""
    return _ENDS_WITH_DENIAL.search(text[-64:]) is not None


_EMPTY_BRACKETS = re.compile(r"\s?\(\s?\)")


def without_denied(text: str) -> str:
    """Drop what is said not to be, "not 5", so that no rule takes it for the answer."""
    pieces, position = [], 0
    for denial in _DENIAL.finditer(text):
        denied = _DENIED.match(text, denial.end())
        if denied is not None and denial.start() >= position:
            pieces.append(text[position : denial.start()])
            position = denied.end()
    return _EMPTY_BRACKETS.sub("", "".join((*pieces, text[position:]))) if pieces else text


_CHANGED = re.compile(
    rf"[$*_)\\]{{0,4}}(?:[\s-]{{1,3}}(?:{'|'.join(CHANGES)}|and\s(?:an?|one|two|three|four|five)[\s-](?:half|third|quarter)s?"
    r"|or\s(?:more|less|fewer)|to\sthe\s\w{0,10}\s?power"
    r"|(?:plus|minus|times|over|less(?:\sthan)?|more\sthan|to|through|choose|mod(?:ulo)?|out\sof)[\s$*_(\\]{1,4}"
    rf"(?:[0-9]{{1,20}}|[b-hj-z]))|(?<=[0-9])(?-i:{'|'.join(SHORT_MAGNITUDES)}))(?!\w)",
    re.IGNORECASE,
)
"""Words behind a number that make another one of it, or a range: `18 squared`, `18 times 3`, `18 to 20`."""
_SCALED = re.compile(
    r"(?:\b(?:(?:half|thirds?|quarters?|fourths?|fifths?|tenths?|percent|roots?|factorial|opposite)\sof|twice|double|triple)"
    r"|%\sof)(?:\sthe)?[\s$*_(\\]{1,4}$",
    re.IGNORECASE,
)
_LIMITED = re.compile(
    r"(?:\b(?:(?:more|less|fewer|greater|larger|smaller|higher|lower)\sthan|different\sfrom|anything\sbut|not\snecessarily|unlikely\sto\sbe)"
    r"|[0-9]\s(?:plus|minus|times|over|less|choose|mod(?:ulo)?)"
    r"|(?:^|[#:=]\s?|\b(?:is|are|was|be)\s)(?:at\s(?:least|most)|up\sto|under|over|above|below|between\s\S{1,20}\sand"
    r"|(?:from\s)?-?[0-9][0-9.,]{0,20}\s(?:to|through)))[\s$*_(\\]{1,4}$",
    re.IGNORECASE,
)
"""Words before a number that make another one of it or only limit it: `half of 18`, `is at least 18`, `is 16 to 18`.

In "she needs at least 18" it is the answer.
"""


def scales_next(text: str) -> bool:
    """Whether a text ends with words that make another number of the next, `half of`."""
    return _SCALED.search(text[-32:]) is not None


def _leading_numbers(clause: str) -> str:
    clause = clause.lstrip("$(*_ ~")
    match = _NUMBERS.match(clause)
    if match is None or _CHANGED.match(clause, match.end()):
        return ""
    return match[0]


def _last_number(text: str) -> Value | None:
    """Read the last number with the numbers and operators it is joined to, so that `42 or 43` is no 43.

    A number that words make another one of, `18 squared`, is read as words.
    """
    near = text[-_NEAR_END:]
    if len(near) < len(text):
        near = near[re.search(r"\s|$", near).end() :]  # type: ignore[union-attr]  # `$` always matches
    for window in (near, text):
        *_, last = (None, *_NUMBERS.finditer(window))
        if last is not None:
            changed = _CHANGED.match(window, last.end())
            span = max(0, last.start() - 48), last.start()
            scaled = _SCALED.search(window, *span) or _LIMITED.search(window, *span)
            if changed or scaled:
                phrase = f"{scaled[0] if scaled else ''}{last[0]}{changed[0] if changed else ''}"
                return Words(phrase, phrase.lower(), is_prose=True)
            relation = _RELATION.search(window, max(0, last.start() - 16), last.start())
            return _span_around(window, last) or read((relation[0] if relation else "") + last[0])
    return None


_SPAN = re.compile(r"\$\$[^$]{1,300}\$\$|\$[^$\n]{1,300}\$|\\\(.{1,300}?\\\)|\\\[.{1,300}?\\\]", re.DOTALL)


def _span_around(text: str, number: re.Match[str]) -> Value | None:
    """Read the formula that the last number stands in: in "so $x > 5$ holds" it is no 5."""
    for span in _SPAN.finditer(text):
        if span.start() <= number.start() and number.end() <= span.end():
            return _final_formula(text[: span.end()])
    return None


_PARENTHESISED_CHOICE = re.compile(r"\(([A-J])\)")
_FINAL_CHOICE = re.compile(r"(?:^|[\s*])([A-J])[.*]{0,3}$")


def _last_choice(text: str) -> Value | None:
    letters = _PARENTHESISED_CHOICE.findall(text) or _FINAL_CHOICE.findall(text)
    return Choice(letters[-1], letters[-1]) if letters else None
