"""Where the final answer of a completion stands."""

from __future__ import annotations

import re

from grpo_tasks_math.verify.normalise import to_ascii
from grpo_tasks_math.verify.reader import MAX_ANSWER_CHARS, read
from grpo_tasks_math.verify.sentence import read_sentence
from grpo_tasks_math.verify.values import Value, Words

MAX_COMPLETION_CHARS = 262_144
"""Only so many last characters of a completion are read: the final answer is at the end, and time stays bounded."""
MAX_JOINED = 8
"""Most headings skipped, and most boxes that make one enumeration."""
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
    text = outside_thinking(to_ascii(completion[-MAX_COMPLETION_CHARS:]))
    tagged = last_answer_block(text)
    return _marked(tagged) if tagged is not None else _free(text)


def read_gold(gold: str) -> Value | None:
    r"""Read a gold answer; one that still stands behind `####` or inside `\boxed{…}` is taken out first."""
    if len(gold) <= MAX_ANSWER_CHARS and ("####" in gold or "\\boxed" in gold):
        return _free(to_ascii(gold))
    return read(gold)


_THINK = re.compile(r"<(/?)\s{0,4}think(?:ing)?\s{0,4}>", re.IGNORECASE)
_ANSWER = re.compile(r"<(/?)answer>", re.IGNORECASE)


def outside_thinking(text: str) -> str:
    """Return the text without its thinking, by rule 1 of `extract`."""
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
        return read_sentence(text) or value
    return read_sentence(text) if value is None and len(text) > MAX_ANSWER_CHARS else value


def _free(text: str) -> Value | None:
    boxed = _last_box(text)
    if boxed is not None:
        return _marked(boxed)
    return _after_hashes(text) or read_sentence(text)


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
    while boxes and len(joined) < MAX_JOINED and _are_joined(text, boxes[-1], joined[-1]):
        joined.append(boxes.pop())
    return ", ".join(content for _, _, content in reversed(joined))


def _are_joined(text: str, earlier: tuple[int, int, str], later: tuple[int, int, str]) -> bool:
    between = text[earlier[1] : later[0]]
    command = max(between.rfind("\\boxed"), between.rfind("\\fbox"))
    return len(between) < 64 and _BETWEEN_BOXES.fullmatch(between[:command]) is not None


def _after_hashes(text: str) -> Value | None:
    """Read the rest of the line after the last `####` that is an answer; headings are not."""
    position = len(text)
    for _ in range(MAX_JOINED):
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
