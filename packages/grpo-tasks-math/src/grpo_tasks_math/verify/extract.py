"""Finds the final answer of a completion."""

from __future__ import annotations

import re
from typing import Literal

from grpo_core.rewards import answer_block
from grpo_tasks_math.verify.normalise import point_decimals, spell_signs, to_ascii
from grpo_tasks_math.verify.reader import MAX_ANSWER_CHARS, read
from grpo_tasks_math.verify.sentence import (
    after_phrase,
    correction,
    denies_next,
    read_sentence,
    retraction,
    scales_next,
    stated,
    without_denied,
)
from grpo_tasks_math.verify.units import CHANGES, MAGNITUDES
from grpo_tasks_math.verify.values import Number, Value, Words

Decimals = Literal["point", "comma"]
"""What separates the decimals of a number."""

MAX_GOLD_CHARS = 8192
"""Longest gold that is read: a whole reference solution."""
MAX_COMPLETION_CHARS = 262_144
"""Only this many last characters of a completion are read, since the final answer is at the end."""
MAX_JOINED = 8
"""Most headings skipped, and most boxes in one enumeration."""
MAX_BETWEEN = 64
"""Most characters between two boxes of one enumeration."""
MAX_BOX_NESTING = 3
"""Nesting of boxes, and of boxes in an answer tag."""


def extract(completion: str, decimals: Decimals = "point") -> Value | None:
    r"""Find and read the final answer; None when there is none.

    1. Thinking is removed: `<think>…</think>`, everything before a `</think>` that the prompt opened, and everything
       after a `<think>` left open, except an `<answer>` tag, which ends the thinking.
    2. Then the first of these that is there: the last `<answer>…</answer>` (or one left open, because engines cut at a
       stop string), the last closed `\boxed{…}` (unless a "final answer is …" behind it corrects it), the line after
       the last `####`, the last phrase "answer is …" or "answer: …", a text that is an answer as a whole, the formula
       or the `= …` that ends the text, the last number with the formula it stands in, a last choice such as (B). What
       is denied, "not 5", is not looked at. A retraction behind a box, `####` or a phrase, "No, it is 5", corrects it.

    An empty tag or box is an empty answer: nothing else is tried. Boxes side by side or joined by `,`, `and` or `or`
    are one enumeration; otherwise a later one corrects the earlier ones. Numbers joined so are one enumeration as well.

    Args:
        completion: Any text.
        decimals: Whether `1,5` is two numbers (`point`) or 1.5 (`comma`).
    """
    text = outside_thinking(_spelled(completion[-MAX_COMPLETION_CHARS:], decimals))
    tagged = answer_block(text)
    return _marked(tagged) if tagged is not None else _free(text)


def states(completion: str, gold: Words, decimals: Decimals = "point") -> bool:
    """Return whether the literal answer of a completion spells a gold that is text: all of `Player 2`, not only the 2.

    The literal answer is in the tag, else in the box, after `####` or after "answer is", or is the whole completion.
    """
    text = outside_thinking(_spelled(completion[-MAX_COMPLETION_CHARS:], decimals))
    tagged = answer_block(text)
    text = text if tagged is None else tagged
    for _ in range(MAX_BOX_NESTING):
        if (box := _last_box(text)) is None:
            break
        text = tagged = box[0]
    candidates = (
        [text] if tagged is not None else [text[text.rfind("####") :].lstrip("#").partition("\n")[0], *stated(text)]
    )
    return any(isinstance(value := read(candidate), Words) and value.words == gold.words for candidate in candidates)


def read_gold(gold: str, decimals: Decimals = "point") -> Value | None:
    r"""Read a gold answer; from a solution, the part after `####`, inside `\boxed{…}` or after "answer is"."""
    gold = _spelled(gold, decimals)
    if "####" in gold or "\\boxed" in gold:
        return _free(gold)
    value = read(gold)
    is_answer = value is not None and not (isinstance(value, Words) and value.is_prose)
    return value if is_answer else after_phrase(gold[-MAX_GOLD_CHARS:]) or value


def _spelled(text: str, decimals: Decimals) -> str:
    text = spell_signs(to_ascii(text))
    return point_decimals(text) if decimals == "comma" else text


_THINK = re.compile(r"<(/?)\s{0,4}think(?:ing)?\s{0,4}>", re.IGNORECASE)
_ANSWER_TAG = re.compile(r"</?answer>", re.IGNORECASE)


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
    elif (answer := _ANSWER_TAG.search(text, position)) is not None:
        pieces.append(text[answer.start() :])
    return "\n".join(pieces)


def _marked(text: str) -> Value | None:
    """Read what a tag or a box encloses: an answer as it stands, or a sentence that holds one."""
    for _ in range(MAX_BOX_NESTING):
        box = _last_box(text)
        if box is None:
            break
        text = box[0]
    value = _after_hashes(text) or read(text)
    if isinstance(value, Words) and value.is_prose:
        return read_sentence(text) or value
    return read_sentence(text) if value is None and len(text) > MAX_ANSWER_CHARS else value


def _free(text: str) -> Value | None:
    for _ in range(MAX_JOINED):
        if (box := _last_box(text)) is None:
            break
        content, start, end = box
        if not denies_next(text[:start]):
            return correction(text[end:]) or _touched(text, box) or _marked(content)
        text = text[:start] + text[end:]
    return _after_hashes(text) or read_sentence(text)


_BEFORE_BOX = re.compile(
    r"(?:\\sqrt\s?(?:\[[^\[\]]{1,8}\])?\s?\{|\\[dtc]?frac\s?\{(?:[^{}]{0,60}\}\s?\{)?|[\^_]\s?\{)[^{}]{0,60}$"
    r"|(?<![^\s=($,\[{])-$|[0-9)}]\s?[+*/^]\s?$|[A-Za-z]\s?[+/^]\s?$|\\(?:times|cdot|div)\s?$|[0-9]-?$"
)
_AFTER_BOX = re.compile(
    r"\s?\^(?!\s?\{?\s?\\(?:circ|degree|text))|\.?[0-9]{1,20}|-[0-9]|\s?(?:[*/+]|\\(?:times|cdot|div))\s?(?:[0-9(]|\\[a-z])"
    r"|\s?\\(?:sqrt|[dtc]?frac|pi)(?![a-z])"
    rf"|(?:[\s$~]|\\[ ,;]|\\text\s?\{{){{1,4}}(?P<word>{'|'.join((*MAGNITUDES, *CHANGES))})(?![A-Za-z])"
)


def _touched(text: str, box: tuple[str, int, int]) -> Value | None:
    r"""Read a box with the sign, digits or magnitude that touch it; other operators, `\boxed{7}^2`, make it words.

    In an equation, `3 + \boxed{4} = 7`, the box alone is the answer.
    """
    content, start, end = box
    before, after = _BEFORE_BOX.search(text[max(0, start - 128) : start]), _AFTER_BOX.match(text, end)
    is_scaled = scales_next(text[:start])
    if not (before or after or is_scaled) or "=" in text[end : end + 64].partition("\n")[0]:
        return None
    if not is_scaled and (before is None or before[0] == "-"):
        behind = "" if after is None else f" {after['word']}" if after["word"] else after[0]
        if isinstance(value := read(f"{before[0] if before else ''}{content}{behind}"), Number):
            return value
    whole = text[max(0, start - 32) : end + 32]
    return Words(whole, whole.lower(), is_prose=True)


# Text that was escaped once too often has two backslashes.
_BOX_TOKEN = re.compile(r"\\{1,2}(?:boxed|fbox)\s{0,4}\{|\\.|[{}]", re.DOTALL)
_BARE_BOX = re.compile(r"\\(?:boxed|fbox)\s{0,4}([A-Za-z0-9])(?![A-Za-z0-9])")
_LAYOUT = re.compile(r"\\(?:text|mbox|textrm)\s?\{([^{}]{0,16})\}|\\[()\[\]]|\\q?quad|\\[,; ]|\$")
_BETWEEN_BOXES = re.compile(r"[ \t]*|[\s.]*(?:,|;|,?\s?(?:and|or))\s*(?:[A-Za-z](?:_\{?\w{1,3}\}?)?\s?=\s*)?")


def _last_box(text: str) -> tuple[str, int, int] | None:
    """Return the inside of the last balanced box, joined with those it continues, and its span; one pass."""
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
        *_, bare = (None, *_BARE_BOX.finditer(text))
        return (bare[1], *bare.span()) if bare is not None else None
    joined = [boxes.pop()]
    while boxes and len(joined) < MAX_JOINED and _are_joined(text, boxes[-1], joined[-1]):
        joined.append(boxes.pop())
    contents = dict.fromkeys(content for _, _, content in reversed(joined))
    return ", ".join(contents), _command_before(text, joined[-1][0]), joined[0][1]


def _command_before(text: str, inside: int) -> int:
    """Return where the command of a box starts."""
    return max(text.rfind("\\boxed", 0, inside), text.rfind("\\fbox", 0, inside))


def _are_joined(text: str, earlier: tuple[int, int, str], later: tuple[int, int, str]) -> bool:
    between = text[earlier[1] : later[0]]
    command = _command_before(between, len(between))
    if len(between) >= MAX_BETWEEN:
        return False
    return _BETWEEN_BOXES.fullmatch(_LAYOUT.sub(lambda layout: f" {layout[1] or ''} ", between[:command])) is not None


def _after_hashes(text: str) -> Value | None:
    """Read the rest of the line after the last `####` that is an answer; headings are not."""
    position = len(text)
    for _ in range(MAX_JOINED):
        position = text.rfind("####", 0, position)
        if position < 0:
            return None
        end = text.find("\n", position)
        line = without_denied(text[position + 4 : end if end >= 0 else len(text)].lstrip("#")[: MAX_ANSWER_CHARS + 1])
        is_last = end < 0 or not text[end:].strip()
        value = read(line)
        if value is not None and (not isinstance(value, Words) or (is_last and not value.is_prose)):
            return retraction(text[end:] if end >= 0 else "") or value
    return None
