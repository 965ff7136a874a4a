"""Where the final answer of a completion stands."""

from __future__ import annotations

import re

from grpo_tasks_math.verify.normalise import to_ascii
from grpo_tasks_math.verify.values import MAX_ANSWER_CHARS, Choice, Value, Words, read

MAX_COMPLETION_CHARS = 262_144
"""Only so many last characters of a completion are read: the final answer is at the end, and time stays bounded."""
SENTENCE_CHARS = 16_384
"""Window of the rules for free text, which use regular expressions."""
MAX_TRIES = 8
"""How many candidates of one rule are tried, from the last."""

MAX_BOX_NESTING = 3
"""A box inside a box, or inside an answer tag."""


def extract(completion: str) -> Value | None:
    r"""Find and read the final answer; None when there is none.

    1. Thinking is removed: `<think>…</think>`, everything before a `</think>` that the prompt opened, and everything
       after a `<think>` left open, except an `<answer>` tag, which ends the thinking.
    2. Then the first of these that is there: the last `<answer>…</answer>` (or one left open, because engines cut at a
       stop string), the last closed `\boxed{…}`, the line after the last `####`, the last phrase "answer is …" or
       "answer: …", a text that is an answer as a whole, the formula or the `= …` that ends the text, the last number,
       a last choice such as (B).

    An empty tag or box is an empty answer: nothing else is tried. Boxes joined by `,`, `and` or `or` are one
    enumeration; otherwise a later one corrects the earlier ones. Numbers joined so are one enumeration as well.
    """
    text = _outside_thinking(to_ascii(completion[-MAX_COMPLETION_CHARS:]))
    tagged = last_answer_block(text)
    return _marked(tagged) if tagged is not None else _free(text)


def read_gold(gold: str) -> Value | None:
    r"""Read a gold answer; one that still stands behind `####` or inside `\boxed{…}` is taken out first."""
    if len(gold) <= MAX_ANSWER_CHARS and ("####" in gold or "\\boxed" in gold):
        return _free(to_ascii(gold))
    return read(gold)


_THINK = re.compile(r"<(/?)\s{0,4}think(?:ing)?\s{0,4}>", re.IGNORECASE)
_ANSWER = re.compile(r"<(/?)answer>", re.IGNORECASE)


def _outside_thinking(text: str) -> str:
    if "<" not in text:
        return text
    pieces: list[str] = []
    position = 0
    is_open = False
    for tag in _THINK.finditer(text):
        if tag[1]:
            if not is_open:
                pieces.clear()
            is_open = False
        elif not is_open:
            pieces.append(text[position : tag.start()])
            is_open = True
        position = tag.end()
    if not is_open:
        pieces.append(text[position:])
    elif (answer := _ANSWER.search(text, position)) is not None:
        pieces.append(text[answer.start() :])
    return "\n".join(pieces)


def last_answer_block(text: str) -> str | None:
    """Return the inside of the last closed `<answer>` block, else of one that is left open at an end, else None."""
    if "<" not in text:
        return None
    opened: int | None = None
    closed: str | None = None
    for tag in _ANSWER.finditer(text):
        if not tag[1]:
            opened = tag.end()
        elif opened is not None:
            closed, opened = text[opened : tag.start()], None
        elif closed is None:
            # The prompt opened the tag.
            closed = text[: tag.start()]
    return text[opened:] if closed is None and opened is not None else closed


def _marked(text: str) -> Value | None:
    """Read what a tag or a box encloses: an answer as it stands, or a sentence that holds one."""
    for _ in range(MAX_BOX_NESTING):
        boxed = _last_box(text)
        if boxed is None:
            break
        text = boxed
    value = _after_hashes(text) or read(text)
    if isinstance(value, Words) and value.is_prose:
        return _sentence(text) or value
    return value


def _free(text: str) -> Value | None:
    boxed = _last_box(text)
    if boxed is not None:
        return _marked(boxed)
    return _after_hashes(text) or _sentence(text)


_CALCULATOR = re.compile(r"<<[^<>\n]{0,200}>>")
"""GSM8K's annotations, `48/2 = <<48/2=24>>24`."""


def _sentence(text: str) -> Value | None:
    text = text[-SENTENCE_CHARS:].strip()
    if "<<" in text:
        text = _CALCULATOR.sub("", text)
    for rule in (_after_phrase, _whole, _final_formula, _final_equation, _last_number, _last_choice):
        if (value := rule(text)) is not None:
            return value
    return None


# --- boxes and hashes -------------------------------------------------------------------------------------------------

_BOX_TOKEN = re.compile(r"\\(?:boxed|fbox)\s{0,4}\{|\\.|[{}]", re.DOTALL)
_BARE_BOX = re.compile(r"\\(?:boxed|fbox)\s{0,4}([A-Za-z0-9])(?![A-Za-z0-9])")
_BETWEEN_BOXES = re.compile(
    r"[\s$.]{0,8}(?:\\[()\[\]])?[\s$]{0,8}(?:,|;|,?\s?(?:and|or))[\s$]{0,8}(?:\\[()\[\]])?[\s$]{0,8}"
)


def _last_box(text: str) -> str | None:
    """Return the inside of the last box with balanced braces, joined with those it continues; one pass."""
    if "\\boxed" not in text and "\\fbox" not in text:
        return None
    stack: list[int | None] = []  # where the inside of each open brace starts, None for a brace that is no box
    boxes: list[tuple[int, int, str]] = []
    for token in _BOX_TOKEN.finditer(text):
        mark = token[0]
        if mark == "{":
            stack.append(None)
        elif mark == "}":
            if stack and (start := stack.pop()) is not None:
                while boxes and boxes[-1][0] > start:
                    boxes.pop()
                boxes.append((start, token.end(), text[start : token.start()]))
        elif mark[-1] == "{" and len(mark) > 2:
            stack.append(token.end())
    if not boxes:
        bare = _BARE_BOX.findall(text)
        return bare[-1] if bare else None
    joined = [boxes.pop()]
    while boxes and len(joined) < MAX_TRIES and _are_joined(text, boxes[-1], joined[-1]):
        joined.append(boxes.pop())
    return ", ".join(content for _, _, content in reversed(joined))


def _are_joined(text: str, earlier: tuple[int, int, str], later: tuple[int, int, str]) -> bool:
    between = text[earlier[1] : later[0]]
    command = max(between.rfind("\\boxed"), between.rfind("\\fbox"))
    return len(between) < 64 and _BETWEEN_BOXES.fullmatch(between[:command]) is not None


def _after_hashes(text: str) -> Value | None:
    """Read the rest of the line after the last `####` that is an answer; headings are not."""
    position = len(text)
    for _ in range(MAX_TRIES):
        position = text.rfind("####", 0, position)
        if position < 0:
            return None
        end = text.find("\n", position)
        line = text[position + 4 : end if end >= 0 else len(text)].lstrip("#")
        is_last = end < 0 or not text[end:].strip()
        value = read(line)
        if value is not None and (not isinstance(value, Words) or (is_last and not value.is_prose)):
            return value
    return None


# --- free text --------------------------------------------------------------------------------------------------------

_PHRASE = re.compile(
    r"\banswer\b(?:[*_ \t)]{0,8}[:=]|[^\n.:=]{0,60}?\b(?:is|are|was|equals)\b[*_ \t]{0,4}:?|[*_ \t:]{0,8}(?=\n))"
    r"[*_\s]{0,8}",
    re.IGNORECASE,
)
_CLAUSE_CHARS = 300
_CLAUSE_END = re.compile(
    r"[,;]?\s(?:because|since|so|which|where|as|when|for|not|but|after|if|given|that|we|therefore|thus|i\.e\.)\b"
    r"|[.;:?!](?=\s|$)|\s\((?=[A-Za-z]{2})|,\s(?=[A-Za-z]{2,20}\s)(?!(?:and|or)\s)"
)


def _after_phrase(text: str) -> Value | None:
    matches = list(_PHRASE.finditer(text))[-MAX_TRIES:]
    for match in reversed(matches):
        clause = _clause(text, match.end())
        for candidate in (clause, _CLAUSE_END.split(clause, maxsplit=1)[0], _leading_numbers(clause)):
            value = read(candidate)
            if value is None or (isinstance(value, Words) and value.is_prose):
                continue
            # "The answer is clear. 40 + 2 = 42": words count only when no number follows.
            if isinstance(value, Words) and any(char.isdigit() for char in text[match.end() :]):
                break
            return value
    return None


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


def _whole(text: str) -> Value | None:
    """Read a text that is nothing but an answer: one line, or numbers on several."""
    if len(text) > _WHOLE_CHARS or ("\n" in text and not _ONLY_NUMBERS.fullmatch(text)):
        return None
    value = read(text)
    return None if isinstance(value, Words) and value.is_prose else value


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
        if start < 0 or (opening == "$" and "\n" in text[start:end]):
            break
        spans.append(text[start + len(opening) : end])
        joint = _JOINED.search(text, max(0, start - 16), start)
        text = text[: joint.start()].rstrip() if joint else ""
    value = read(" or ".join(reversed(spans)))
    return None if isinstance(value, Words) else value


def _final_equation(text: str) -> Value | None:
    """Read what follows the last `=` of the last line, if it is an answer up to its end; `x = 1 or x = 2` is two."""
    *before, tail = text[text.rfind("\n") + 1 :].split("=")
    if not before or len(tail) > _CLAUSE_CHARS:
        return None
    values = [tail]
    for part in before[:0:-1]:
        joint = _JOINED_NAME.search(part[-16:])
        if joint is None or len(values) == MAX_TRIES:
            break
        values.append(part[: max(0, len(part) - 16) + joint.start()])
    value = read(" or ".join(reversed(values)))
    return None if isinstance(value, Words) else value


_DIGITS = r"(?:(?>[0-9]{1,3}(?:,[0-9]{3})++(?![0-9])|[0-9]++)(?:\.[0-9]++)?(?:[eE][-+]?[0-9]{1,4}(?!\w))?|\.[0-9]++)"
_ROOT_OR_FRACTION = (
    r"(?:\\[dtc]?frac\s?(?:\{[^{}]{1,60}\}|[0-9])\s?(?:\{[^{}]{1,60}\}|[0-9])|\\sqrt(?:\[[0-9]\])?\{[^{}]{1,60}\})"
)
_ELEMENT = (
    rf"\\?[$€£¥]?\s?(?:{_DIGITS}(?:\s?{_ROOT_OR_FRACTION})?|{_ROOT_OR_FRACTION})(?!st\b|nd\b|rd\b|th\b)(?:\s?\\?%)?"
)
# A minus is a sign where it touches the number or follows a word; a dash that begins a line is a bullet.
_START = (
    r"(?:(?<![\w^_.{\\)\]}%$+*/-])|(?<![\w^_.{\\)\]}%])(?:[-+](?=[$€£¥.\\0-9])|(?<=[^\s\w)\]}] )- ?|(?<=[A-Za-z] )- ?))"
)
_JOIN = (
    r"(?:\s{0,3}(?:[-+*/^]|\*\*)\s{0,3}-?|\s{0,3}(?:,|;|&|\band\b|\bor\b)\s{0,3}(?:(?:and|or)\s{1,3})?-?|[ \t]{1,3})"
)
_NUMBERS = re.compile(rf"{_START}{_ELEMENT}(?:{_JOIN}{_ELEMENT}){{0,63}}")
_NEAR_END = 400
"""Characters of the end in which the last number is looked for before the whole window."""


def _leading_numbers(clause: str) -> str:
    match = _NUMBERS.match(clause.lstrip("$(*_ ~"))
    return match[0] if match else ""


def _last_number(text: str) -> Value | None:
    """Read the last number with the numbers and operators it is joined to, so that `42 or 43` is no 43."""
    near = text[-_NEAR_END:]
    if len(near) < len(text):
        near = near[re.search(r"\s|$", near).end() :]  # type: ignore[union-attr]  # `$` always matches
    for window in (near, text):
        matches = _NUMBERS.findall(window)
        if matches:
            return read(matches[-1])
    return None


_PARENTHESISED_CHOICE = re.compile(r"\(([A-J])\)")
_FINAL_CHOICE = re.compile(r"(?:^|[\s*])([A-J])[.*]{0,3}$")


def _last_choice(text: str) -> Value | None:
    letters = _PARENTHESISED_CHOICE.findall(text) or _FINAL_CHOICE.findall(text)
    return Choice(letters[-1], letters[-1]) if letters else None
