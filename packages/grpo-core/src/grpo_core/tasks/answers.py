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
    in that, or without a tag in all the rest, it is the last `\boxed{…}`, else what follows the last `####`, else all.
    """
    text = outside_thinking(text)
    tagged = answer_block(text)
    if (boxed := _last_box(text if tagged is None else tagged)) is not None:
        return plain_latex(boxed).strip()
    return (text if tagged is None else tagged).rpartition("####")[2].strip()


def outside_thinking(text: str) -> str:
    """The text behind the last `</think>`, up to a `<think>` that is left open."""
    answer = text[thinking_end(text) :]
    opened = _THINK.search(answer)
    return answer if opened is None else answer[: opened.start()]


def thinking_end(text: str) -> int:
    """Where the last `</think>` ends; 0 without one."""
    return max((tag.end() for tag in _THINK.finditer(text) if tag[1]), default=0)


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
