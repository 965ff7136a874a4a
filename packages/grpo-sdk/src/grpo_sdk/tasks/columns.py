"""Guesses which columns of a file are questions and answers, and which verifier of `core.qa` fits the answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grpo_sdk.errors import UserError, near_match
from grpo_sdk.tasks.answers import answer_of
from grpo_sdk.tasks.numbers import read_number
from grpo_sdk.tasks.verifiers import tests_of

NAMES: Mapping[str, tuple[str, ...]] = {
    "question": ("question", "prompt", "problem", "instruction", "query", "input", "task"),
    "answer": ("answer", "gold", "solution", "output", "target", "label", "response", "result", "tests"),
    "choices": ("choices", "options"),
    "completion": ("completion", "demo"),
}
"""Field of `core.qa` -> names that its column often has, the most telling first."""

REQUIRED = ("question", "answer")


@dataclass(frozen=True, slots=True)
class Columns:
    """How `core.qa` reads a file.

    Attributes:
        fields: Field -> column.
        verifier: Name of the verifier.
        reason: Why that verifier.
        template: Name of the template that shows the form of the answers.
    """

    fields: Mapping[str, str]
    verifier: str
    reason: str
    template: str


def guess_columns(
    records: Sequence[Mapping[str, Any]], source: str, fields: Mapping[str, str], verifier: str | None
) -> Columns:
    """Guess what was not given.

    Args:
        records: Records of the file, at least one.
        source: Name of the file, for messages.
        fields: Field -> column, as far as they were given.
        verifier: Name of the verifier, if it was given.

    Raises:
        UserError: no column can be told to be the question or the answer; says what to give.
    """
    columns = [name for name in records[0] if all(name in record for record in records)]
    _check_fields(fields, [str(name) for name in records[0]], source)
    chosen = dict(fields)
    for field, names in NAMES.items():
        free = [str(column) for column in columns if column not in chosen.values()]
        by_name = {**{column.casefold(): column for column in free}, **{column: column for column in free}}
        found = next((by_name[name] for name in names if name in by_name), None)
        if field not in chosen and found is not None:
            chosen[field] = found
        if field in REQUIRED and field not in chosen:
            raise UserError(
                f"{source}: none of its columns ({', '.join(map(str, records[0]))}) looks like the {field}; say which "
                f"with --fields {field}:COLUMN."
            )
    answers = [_text(record.get(chosen["answer"])) for record in records]
    guessed, reason = _verifier(answers, "choices" in chosen)
    if verifier is not None:
        guessed, reason = verifier, "as given"
    is_worked = guessed != "code" and all("####" in answer for answer in answers)
    if is_worked:  # a whole solution, which ends with its answer: it is the gold completion
        chosen.setdefault("completion", chosen["answer"])
    template = "steps" if is_worked else "qa"
    return Columns({field: chosen[field] for field in NAMES if field in chosen}, guessed, reason, template)


def _check_fields(fields: Mapping[str, str], columns: Sequence[str], source: str) -> None:
    """Refuse a field that core.qa does not have, and a column that the file does not have."""
    for field, column in fields.items():
        if field not in NAMES:
            raise UserError(
                f"--fields {field}:{column}: there is no field {field!r}.{near_match(field, NAMES)} "
                f"Fields: {', '.join(NAMES)}."
            )
        if column not in columns:
            raise UserError(
                f"--fields {field}:{column}: {source} has no column {column!r}.{near_match(column, columns)} "
                f"It has: {', '.join(columns)}."
            )


def check_texts(records: Iterable[tuple[str, Mapping[str, Any]]], columns: Columns) -> None:
    """Refuse objects and lists where a text is expected; choices and messages are lists, schemas and tests may be.

    Args:
        records: (place, record) of each line.
        columns: How they are read.

    Raises:
        UserError: names the place and the column.
    """
    is_structured = columns.verifier in ("json", "code")
    fields = [field for field in columns.fields if field != "choices" and not (field == "answer" and is_structured)]
    for where, record in records:
        for field in fields:
            column = columns.fields[field]
            if isinstance(value := record.get(column), dict if field == "question" else dict | list):
                kind = "an object" if isinstance(value, dict) else "a list"
                raise UserError(f"{where}: column {column!r} is {kind}; the {field} must be a text or a number.")


def _text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else str(value)


def _verifier(answers: Sequence[str], has_choices: bool) -> tuple[str, str]:
    """The strictest verifier that can read every answer, and why."""
    if has_choices:
        return "choice", "there are choices"
    if all(read_number(answer_of(answer, is_strict=False), has_unit=False) for answer in answers):
        return "number", "every answer is a number"
    if all(len(answer.strip("().")) == 1 and answer.strip("().") in "ABCDEFGHIJ" for answer in answers):
        return "choice", "every answer is a letter"
    if all("assert " in answer and _are_tests(answer) for answer in answers):
        return "code", "every answer is Python with assert"
    if any(mark in answer for answer in answers for mark in ("\\boxed", "\\frac", "\\sqrt")):
        return "math", "answers are LaTeX"
    return "exact", "answers are text"


def _are_tests(answer: str) -> bool:
    try:
        return bool(tests_of(answer))
    except ValueError:
        return False
