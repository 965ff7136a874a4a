"""The answer that a completion marks, as text."""

from __future__ import annotations

import re

from grpo_core.task.marks import marked_answers, outside_thinking
from grpo_core.task.score import Invalid

_LATEX_TEXT = re.compile(r"\\(?:text(?:bf|it|rm)?|mbox|math(?:rm|bf))\s?\{([^{}]{0,1000})\}")


def answer_of(text: str, kind: str = "") -> str:
    r"""The answer that a completion marks behind its thinking, without white space around it; all of it without a mark.

    Args:
        text: A completion.
        kind: Kind of the mark that the prompt asks for: box, tag, ####, answer:; by default any.

    Raises:
        Invalid: there is no mark of the kind, or marks of several kinds hold different answers.
    """
    text = outside_thinking(text)
    answers = {name: plain_latex(", ".join(mark.contents)).strip() for name, mark in marked_answers(text, kind).items()}
    if len({" ".join(answer.split()).casefold() for answer in answers.values()}) > 1:
        raise Invalid(
            "marks that differ: " + ", ".join(f"{name} says {answer!r:.60}" for name, answer in answers.items())
        )
    if not answers and kind and text.strip():
        raise Invalid(f"no answer in the mark that the prompt asks for ({kind})")
    return next(iter(answers.values()), text).strip()


def plain_latex(text: str) -> str:
    r"""The text without `\text{…}` and the like around words."""
    return _LATEX_TEXT.sub(r"\1", text) if "\\" in text else text
