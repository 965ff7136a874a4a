r"""The free reading: the answer that a text states last, marked or not.

An `<answer>` tag counts first, then the last of box, `####` and phrase, then the last sentence that states a value. One
rule says what is denied: a clause with a word of `DENIALS` states nothing.
"""

from __future__ import annotations

import re

from grpo_sdk.rewards import marked_answers
from grpo_tasks_math.verify.normalise import group_digits, trim_end, unwrap_text
from grpo_tasks_math.verify.reader import HEDGE, is_open, read, without_explanation
from grpo_tasks_math.verify.units import ALTERING, CONDITIONS, DENYING
from grpo_tasks_math.verify.values import Choice, Digits, Number, Value, Words

WINDOW_CHARS = 16_384
"""Characters at the end in which an answer without a mark is looked for, by regular expressions."""
MAX_TRIES = 8
"""Marks, and spans of mathematics, that are tried from the last."""
MAX_SENTENCES = 24
"""Sentences that are tried from the last."""
WHOLE_CHARS = 300
"""Longest text that may be an answer as a whole."""

DENIALS = re.compile(
    rf"\b(?:{'|'.join(DENYING)}|(?:also|is|are) possible|instead of|other than|different from|anything but|all but)\b"
    r"|\b(?:no way|rule out)\b|n't\b|[✗✘❌]",
    re.IGNORECASE,
)
"""Words of a clause that states nothing."""
_CONDITIONS = re.compile(rf"\b(?:{'|'.join(CONDITIONS)})\b", re.IGNORECASE)
"""They begin what only a clause without a mark supposes: "if we add them we get" may stand before a box."""
_CHANGED_BEFORE = re.compile(
    r"(?:\b(?:half|thirds?|quarters?|fourths?|fifths?|tenths?|percent|roots?|factorial|opposite|out|multiples?) of"
    r"|\b(?:step|problem|question|figure|equation|case|part|section|chapter|page|table|line|example|exercise|theorem|lemma)s?"
    r"|%\s?of|\b(?:twice|double|triple|than|least|most|between|under|over|above|below|up to|minus|plus|times|exceed)"
    r"|(?:^|[#:=]\s?|\b(?:is|are|was)\s)(?:from\s)?-?[0-9][0-9.,]{0,20}\s(?:to|through))(?:\sthe)?[\s$*_(\\]{1,4}$",
    re.IGNORECASE,
)
"""Words before a number that make another one of it or limit it; what holds them there states nothing."""


def read_free(text: str, gold: Value | None = None) -> Value | None:
    """Read what a text states last; None where it states nothing.

    Args:
        text: What a completion says outside its thinking, with ASCII signs.
        gold: What is asked for: words without a mark state only a gold of words, and an equation with unknowns only
            another one. None takes both.
    """
    is_text = gold is None or isinstance(gold, Words)
    rest, behind = text, ""
    for _ in range(MAX_TRIES):
        marks = marked_answers(rest)
        if "tag" in marks:
            return read(", ".join(marks["tag"].contents))
        if not marks:
            break
        if is_marked := "answer:" not in marks:
            phrases = marked_answers(rest, "answer:").items()
            marks |= {name: at for name, at in phrases if not any(m.start < at.start < m.end for m in marks.values())}
        name, mark = max(marks.items(), key=lambda item: item[1].start)
        before, content = rest[: mark.start], ", ".join(mark.contents)
        value = read(content)
        if name == "answer:":
            phrase = rest[mark.start : mark.end].partition(mark.contents[0] or "\0")[0]
            before = (before[-WHOLE_CHARS:] + phrase).replace(":", "")  # "a common mistake: the answer is"
            if isinstance(value, Words) and (":" in phrase or DENIALS.search(content)) and not HEDGE.search(content):
                value = _last_statement(content, gold) or value
        is_denied = denies(before, is_marked=is_marked)
        # A line with #### may be a heading, and a phrase a mere remark: "the answer is clear".
        says = {"box": True, "####": not rest[mark.end :].strip()}
        is_said = says.get(name, not is_marked and (is_text or any(map(str.isdigit, content))))
        if (is_said if value is None or isinstance(value, Words) else True) and not is_denied:
            return value
        behind = rest[mark.end if is_denied else mark.start :] + behind
        rest = rest[max(0, mark.start - WINDOW_CHARS) : mark.start]
    return _last_statement(rest + behind, gold)


_SENTENCE = re.compile(r"(?<=[.!?])(?<![ap]\.m\.)[*_\"')]{0,3}\s+|\n+")
_CLAUSE = re.compile(
    r"(?<=[A-Za-z*)])\s?:\s|[;,]\s(?=(?:(?!(?:and|or|which)\b)[A-Za-z]{2,}|I)\s)"
    r"|(?<!anything)(?<!\ball)(?<!,)(?<!\bthat)(?<!\bdoubt)\s(?=(?:but|which|then|it['’]s|it is)\s)"
)


def denies(before: str, *, is_marked: bool) -> bool:
    """Whether the clause that ends here, before a mark or a phrase, denies what follows."""
    clause = _CLAUSE.split(_SENTENCE.split(before[-400:])[-1])[-1]
    return DENIALS.search(clause) is not None or (not is_marked and _CONDITIONS.search(clause) is not None)


_CALCULATOR = re.compile(r"<<[^<>\n]{0,200}>>")
"""GSM8K's annotations, `48/2 = <<48/2=24>>24`."""
_BOLD = re.compile(r"(?<![0-9)])(?<!(?<![A-Za-z])[A-Za-z])\*\*|\*\*(?![0-9(.-])|\*\*(?=\.?(?:\s|$))")
"""Markdown's `**4**`, not the power `2**3` or `x**2`."""
_BLOCK = re.compile(r"\$\$[^$]{1,2000}\$\$|\\\[.{1,2000}?\\\]|\\\(.{1,400}?\\\)|\$[^$]{1,400}\$", re.DOTALL)
_ALIGNED = re.compile(r"\\(?:begin|end)\{(?:align|aligned|gather|split)\*?\}|(?<!\\)&(?=\s?=)")
_FULL_STOP = re.compile(r"(?<!\.)\.\s*$")
_BULLET = re.compile(r"^[ \t]*[-*•][ \t]+(?=\S)", re.MULTILINE)
_ONLY_NUMBERS = re.compile(r"[-+$0-9.,;%/ \n]+")
_FEW_WORDS = 2
"""`Vitamin C` is words; `I think C` ends with a choice."""


def _last_statement(text: str, gold: Value | None) -> Value | None:
    is_text, takes_open = gold is None or isinstance(gold, Words), gold is None or is_open(gold)
    text = trim_end(text[-WINDOW_CHARS:].strip())
    if "<<" in text:
        text = _CALCULATOR.sub("", text)
    if "**" in text:
        text = _BOLD.sub("", text)
    if "\\" in text or "{" in text:
        text = unwrap_text(group_digits(text)).strip()
    if _ALIGNED.search(text):
        text = _ALIGNED.sub("", text.replace("\\\\", "\n"))
    text = _BLOCK.sub(lambda block: block[0].replace("\n", " "), text)
    if _ONLY_NUMBERS.fullmatch(text) and (value := read(text)) is not None:
        return value
    text = _BULLET.sub("", text) if "\n" in text else text
    whole = read(text) if len(text) <= WHOLE_CHARS and "\n" not in text else None
    are_words = isinstance(whole, Words) and (is_text or not (whole.is_prose or text.count(" ") >= _FEW_WORDS))
    if (are_words or isinstance(whole, Choice)) and (is_text or not DENIALS.search(text)):
        return whole
    for sentence in _SENTENCE.split(text)[-MAX_SENTENCES:][::-1]:
        if HEDGE.search(sentence):
            continue
        for clause in _CLAUSE.split(f" {_FULL_STOP.sub('', sentence)}")[::-1]:
            clause = clause.strip() if "$" in clause or "\\approx" in clause else without_explanation(clause.strip())
            is_said = clause and not DENIALS.search(clause) and not _CONDITIONS.search(clause)
            if is_said and (value := _stated(clause, takes_open=takes_open)) is not None:
                return value
    return whole if isinstance(whole, Words) else None


_SPAN = re.compile(r"\$\$([^$]{1,2000})\$\$|\$([^$]{1,400})\$|\\\((.{1,400}?)\\\)|\\\[(.{1,2000}?)\\\]")
_JOINED = re.compile(r"\s{0,3}(?:,|;|\b(?:or|and)\b)\s{0,3}(?:(?:or|and)\s{1,3})?")
_BEHIND = re.compile(r"[^0-9=\\$]{0,200}")
"""Words behind the last span of a clause: mathematics there is the answer instead."""


def _stated(clause: str, *, takes_open: bool) -> Value | None:
    """Read what a clause states: all of it, its last span of mathematics, its last equation, number or choice."""
    is_prose = clause.count(" ") > _FEW_WORDS and re.search(r"[-+0-9$\\=*/^<>|,;({\[]", clause) is None
    for rule in (_choice,) if is_prose else (_whole, _span, _equation, _number, _choice):
        found, value = rule(clause)
        if found:
            return None if isinstance(value, Words) or (is_open(value) and not takes_open) else value
    return None


def _whole(clause: str) -> tuple[bool, Value | None]:
    value = read(clause)
    is_mathematics = isinstance(value, Value) and not isinstance(value, Words) and "$" not in value.text.strip("$")
    return is_mathematics or isinstance(value, Number), value


def _span(clause: str) -> tuple[bool, Value | None]:
    """The last span of mathematics with those that are joined to it, where no mathematics follows."""
    spans = list(_SPAN.finditer(clause))
    if not spans or not _BEHIND.fullmatch(clause, spans[-1].end()):
        return False, None
    joined = [spans[-1]]
    for span in spans[-2::-1][:MAX_TRIES]:
        if not _JOINED.fullmatch(clause, span.end(), joined[-1].start()):
            break
        joined.append(span)
    text = " or ".join(next(filter(None, span.groups())) for span in reversed(joined))
    behind = clause[spans[-1].end() :]
    if _CHANGED_BEFORE.search(clause[: joined[-1].start()]):
        return True, None
    value = read(f"{text}{behind}") if behind.startswith((" ", "%", "\\%")) else None
    return True, value if isinstance(value, Number) else read(text)


_DIGITS = (
    r"(?:(?>[0-9]{1,3}(?:,[0-9]{3})++(?![0-9])|[0-9]{1,2}:[0-9]{2}|[0-9]++)(?:\.[0-9]++)?"
    r"(?:[eE][-+]?[0-9]{1,4}(?!\w))?|\.[0-9]++)"
)
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
_RELATION = re.compile(r"(?:^|(?<=[\s($]))[A-Za-z]\s?(?:[<>!]=|[<>]|\\(?:le|ge|ne|leq|geq|neq)(?![A-Za-z]))\s?$")
"""A variable and its relation before a number: `x >= 5` is no 5."""
_CHANGING = ALTERING - {"and", "if", "but"} | {"and ", "at "}
_WORD_BEHIND = re.compile(r"[$*_)\\]{0,4}[\s-]{1,3}(and\s(?=(?:an?|one|two|three)\s)|at\s(?=least|most)|[a-z]+)")
_MINUS = re.compile(
    r"(?:^|\b(?:is|are|was|were|equals?|to|of|at|by|an?|so)\s|[:=(]\s?)[$*_]{0,3}(?:minus|negative)[\s$*]{1,3}$", re.I
)


def _number(clause: str) -> tuple[bool, Value | None]:
    """The last number with the numbers and operators it is joined to, so that `42 or 43` is no 43."""
    *_, last = (None, *_NUMBERS.finditer(clause))
    if last is None:
        return False, None
    before, word = clause[: last.start()][-48:], _WORD_BEHIND.match(clause, last.end())
    is_negative = _MINUS.search(before) is not None
    if (word and word[1] in _CHANGING) or (_CHANGED_BEFORE.search(before) and not is_negative):
        return True, None
    relation, sign = _RELATION.search(clause, max(0, last.start() - 16), last.start()), "-" * is_negative
    value = read(sign + clause[last.start() :])  # with its unit
    if relation or not isinstance(value, Number | Digits):
        value = read((relation[0] if relation else sign) + last[0])
    return True, value


_EQUALS = re.compile(r"(?<![<>!=])(?<!\\le)(?<!\\ge)(?<!\\ne)(?<!\\[lgn]eq)(?<!\\not)=(?!=)")
_OPERAND = re.compile(
    r"(?:\\[A-Za-z]+|(?<![A-Za-z])[A-Za-z]{1,2}(?![A-Za-z])|[^\sA-Za-z,:]|(?<=[\d)}A-Za-z])\s(?=[-+*/^])|(?<=[-+*/^])\s)+$"
)


def _equation(clause: str) -> tuple[bool, Value | None]:
    """The last equation, from what stands at the left of its first `=`; else what follows its last `=`."""
    *before, tail = _EQUALS.split(clause)
    if not before or len(tail) > WHOLE_CHARS:
        return False, None
    operand = _OPERAND.search(before[0][-WHOLE_CHARS:].rstrip())
    if operand and _CHANGED_BEFORE.search(before[0][-WHOLE_CHARS:][: operand.start()]):
        return True, None
    is_part = operand and operand.start() and _NUMBERS.fullmatch(operand[0].strip(" *"))  # the 4 of `60 x 4 = 240`
    left = "=".join([operand[0], *before[1:], ""]) if operand and not is_part else ""
    leading = _NUMBERS.match(tail.strip())
    for text in (f"{left}{tail}", tail, f"{left}{leading[0]}" if leading else ""):
        if not isinstance(value := read(text), Words | None):
            return True, value
    return False, None


_CHOICES = re.compile(r"\(([A-J])\)|(?:^|[\s*])([A-J])[.*]{0,3}$")


def _choice(clause: str) -> tuple[bool, Value | None]:
    *_, letter = (None, *_CHOICES.finditer(clause))
    return letter is not None, Choice(letter[0], letter[1] or letter[2]) if letter else None
