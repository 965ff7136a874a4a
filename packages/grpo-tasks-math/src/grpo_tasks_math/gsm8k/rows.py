"""Reads the two published formats of GSM8K: `{question, answer}` and `{index, text}` with think and answer tags."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from grpo_sdk import Row

Form = Literal["auto", "raw", "latex"]

MAX_ANSWER_CHARS = 100
"""A longer final answer is a mistake in the file."""

_ANNOTATION = re.compile(r"<<[^<>\n]{0,200}>>")


class GSM8KRow(Row):
    """One problem; its difficulty is the number of lines of the reference solution.

    Attributes:
        question: The problem.
        answer: The final number, without thousands separators.
    """

    question: str
    answer: str


@dataclass(frozen=True, slots=True)
class Solution:
    """A problem as read from a file, before a template is applied.

    Attributes:
        question: The problem.
        reasoning: Reference solution without calculator annotations such as `<<48/2=24>>`, which are meant for a
            calculator tool and not for the model to write.
        answer: The final number, without thousands separators.
    """

    question: str
    reasoning: str
    answer: str

    @property
    def steps(self) -> int:
        """Number of lines of the reasoning."""
        return sum(bool(line.strip()) for line in self.reasoning.splitlines())


def read_solution(record: Mapping[str, Any], form: Form) -> Solution:
    """Read a record of either format.

    Args:
        record: One line of the file.
        form: `raw`, `latex`, or `auto`, which is `latex` for a record that has `text` and no `question`.

    Raises:
        ValueError: a field is missing or is not text, or the text has another structure.
    """
    if form == "auto":
        form = "latex" if "text" in record and "question" not in record else "raw"
    if form == "raw":
        question = _text(record, "question")
        reasoning, mark, answer = _text(record, "answer").rpartition("####")
        if not mark:
            raise ValueError("answer: no #### before the final number")
        return _cleaned(question, reasoning, answer)
    question, opened, rest = _text(record, "text").partition("<think>")
    reasoning, thought, rest = rest.partition("</think>")
    between, answered, rest = rest.partition("<answer>")
    answer, closed, after = rest.partition("</answer>")
    if not (opened and thought and answered and closed) or between.strip() or after.strip():
        raise ValueError("text: not of the form question <think>…</think> <answer>…</answer>")
    return _cleaned(question, reasoning, answer)


def _text(record: Mapping[str, Any], field: str) -> str:
    if field not in record:
        raise ValueError(
            f"no field {field!r}. It has: {', '.join(map(str, record))}. Wanted are question and answer, or text alone "
            f"(?form=latex). Say where it is with ?fields={field}:COLUMN."
        )
    value = record[field]
    if not isinstance(value, str):
        raise ValueError(f"{field}: a {type(value).__name__} where text is wanted")
    return value


def _cleaned(question: str, reasoning: str, answer: str) -> Solution:
    solution = Solution(question.strip(), _ANNOTATION.sub("", reasoning).strip(), answer.strip().replace(",", ""))
    if not solution.question:
        raise ValueError("an empty question")
    if not 0 < len(solution.answer) <= MAX_ANSWER_CHARS:
        raise ValueError(f"a final answer of {len(solution.answer)} characters; 1 to {MAX_ANSWER_CHARS} are allowed")
    return solution
