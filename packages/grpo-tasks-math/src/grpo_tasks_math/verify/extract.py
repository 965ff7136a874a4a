"""Finds what a completion states, by one of two readings, and the answer of a gold."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from grpo_sdk.rewards import marked_answers, outside_thinking
from grpo_tasks_math.verify.free import denies, read_free
from grpo_tasks_math.verify.normalise import point_decimals, to_ascii
from grpo_tasks_math.verify.reader import read
from grpo_tasks_math.verify.values import Value, Words

Decimals = Literal["point", "comma"]
"""What separates the decimals of a number."""
Reading = Literal["free", "marked", "box", "tag", "####", "answer:"]
"""`free` takes an answer wherever a text states one, `marked` only from marks, the others from marks of one kind."""

MAX_GOLD_CHARS = 8192
"""Longest gold that is read: a whole reference solution."""
MAX_COMPLETION_CHARS = 262_144
"""Only this many last characters of a completion are read, since the final answer is at the end."""


def extract(
    completion: str, decimals: Decimals = "point", reading: Reading = "free", gold: Value | None = None
) -> Mapping[str, Value | None]:
    """Read what a completion states: where -> value, None where nothing can be read.

    Args:
        completion: Any text.
        decimals: Whether `1,5` is two numbers (`point`) or 1.5 (`comma`).
        reading: `free`: the answer wherever it stands, see `read_free`. `marked`: the last mark of each kind, or all
            where there is none. A kind: its last mark; nothing where there is none.
        gold: What is asked for in `read_free`.
    """
    text = _spelled(outside_thinking(completion[-MAX_COMPLETION_CHARS:]), decimals)
    if reading in ("free", "marked") and not isinstance(gold, Words | None):
        text = _without_headings(text)
    if reading == "free":
        return {"text": read_free(text, gold)}
    kind = "" if reading == "marked" else reading
    found = marked_answers(text, kind)
    if "answer:" in found and denies(text[: found["answer:"].start], is_marked=True):
        found = {}
    marks = {name: mark.contents for name, mark in found.items()} or ({} if kind else {"text": (text,)})
    return {name: read(", ".join(contents)) for name, contents in marks.items()}


_HASHES = re.compile(r"####+(?:(?!</)[^\n#])*")


def _without_headings(text: str) -> str:
    """Drop those of the last 32 lines with #### that hold no value: text follows them, or no digit is in them."""
    for line in [*_HASHES.finditer(text)][-32:][::-1]:
        mark = marked_answers(line[0]).get("####")
        if mark is None or not isinstance(read(", ".join(mark.contents)), Words | None):
            break  # of marks the last counts
        if text[line.end() :].strip() or not any(map(str.isdigit, line[0])):
            text = text[: line.start()] + text[line.end() :]
    return text


def read_gold(gold: str, decimals: Decimals = "point") -> Value | None:
    r"""Read a gold answer; from a solution, the part after `####`, inside `\boxed{…}` or after "answer is"."""
    gold = _spelled(gold, decimals)
    if "####" in gold or "\\boxed" in gold:
        return read_free(gold)
    value = read(gold)
    is_answer = value is not None and not (isinstance(value, Words) and value.is_prose)
    return value if is_answer or not marked_answers(gold) else read_free(gold) or value


def _spelled(text: str, decimals: Decimals) -> str:
    text = to_ascii(text)
    return point_decimals(text) if decimals == "comma" else text
