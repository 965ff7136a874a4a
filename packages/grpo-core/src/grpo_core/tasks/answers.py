"""The answer in a completion: behind the thinking, in a tag or a box, or after ####."""

from __future__ import annotations

import re

from grpo_core.rewards import answer_block

_THINK = re.compile(r"<(/?)\s{0,4}think(?:ing)?\s{0,4}>", re.IGNORECASE)
_BOX_TOKEN = re.compile(r"\\boxed\s?\{|\\.|[{}]", re.DOTALL)
_LATEX_TEXT = re.compile(r"\\(?:text(?:bf|it|rm)?|mbox|math(?:rm|bf))\s?\{([^{}]{0,1000})\}")


def answer_of(text: str) -> str:
    r"""The answer that a completion marks, without white space around it.

    Thinking never counts. Of the rest it is what the last `<answer>` holds that is closed, else one that is left open;
    in that, or without a tag in all the rest, the last `\boxed{…}`; without a tag and a box, what follows the last
    `####`, else all of it.
    """
    text = outside_thinking(text)
    tagged = answer_block(text)
    if (boxed := _last_box(text if tagged is None else tagged)) is not None:
        return plain_latex(boxed).strip()
    return (text.rpartition("####")[2] if tagged is None else tagged).strip()


def outside_thinking(text: str) -> str:
    """The text behind the last `</think>`, up to a `<think>` that is left open."""
    start, end = 0, len(text)
    for tag in _THINK.finditer(text):
        if tag[1]:
            start, end = tag.end(), len(text)
        else:
            end = min(end, tag.start())
    return text[start:end]


def plain_latex(text: str) -> str:
    r"""The text without `\text{…}` and the like around words."""
    return _LATEX_TEXT.sub(r"\1", text) if "\\" in text else text


def _last_box(text: str) -> str | None:
    """The inside of the last box whose braces are balanced; of nested ones the inner. One pass."""
    if "\\boxed" not in text:
        return None
    opened: list[int | None] = []  # where the inside of each open brace starts; None for a brace that is no box
    last: tuple[int, int] | None = None
    for token in _BOX_TOKEN.finditer(text):
        if token[0] == "{":
            opened.append(None)
        elif token[0].startswith("\\boxed"):
            opened.append(token.end())
        elif token[0] == "}" and opened:
            start = opened.pop()
            if start is not None and (last is None or start > last[0]):
                last = start, token.start()
    return None if last is None else text[slice(*last)]
