"""The answer that a completion marks, as text."""

from __future__ import annotations

from grpo_sdk.task.marks import marked_answers, outside_thinking, plain_latex
from grpo_sdk.task.score import Invalid


def answer_of(text: str, kind: str = "", *, is_strict: bool = True) -> str:
    r"""The answer that a completion marks behind its thinking, without white space around it; all of it without a mark.

    Args:
        text: A completion.
        kind: Kind of the mark that the prompt asks for: box, tag, ####, answer:; by default any.

        is_strict: Whether marks of several kinds must agree; else tag, box and #### count in this order.

    Raises:
        Invalid: there is no mark of the kind, or marks of several kinds hold different answers.
    """
    text = outside_thinking(text)
    answers = {name: plain_latex(", ".join(mark.contents)).strip() for name, mark in marked_answers(text, kind).items()}
    if is_strict and len({" ".join(answer.split()).casefold() for answer in answers.values()}) > 1:
        raise Invalid(
            "marks that differ: " + ", ".join(f"{name} says {answer!r:.60}" for name, answer in answers.items())
        )
    if not answers and kind and text.strip():
        raise Invalid(f"no answer in the mark that the prompt asks for ({kind})")
    return next(iter(answers.values()), text).strip()
