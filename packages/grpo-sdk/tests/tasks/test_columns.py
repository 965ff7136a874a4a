from typing import Any

import pytest

from grpo_sdk import UserError
from grpo_sdk.tasks.columns import guess_columns


def guessed(*records: dict[str, Any], fields: dict[str, str] | None = None, verifier: str | None = None) -> Any:
    return guess_columns(records, "rows.jsonl", fields or {}, verifier)


@pytest.mark.parametrize(
    ("answers", "verifier", "reason"),
    [
        ((6, 45.5), "number", "every answer is a number"),
        (("1,200", "-3", "3/4", "$5", "12%"), "number", "every answer is a number"),
        (("A", "(C)", "b."[:1].upper()), "choice", "every answer is a letter"),
        (("Paris", "12"), "exact", "answers are text"),
        (("\\frac{1}{2}", "x"), "math", "answers are LaTeX"),
        (("assert f(1) == 2", "assert g() is None\nassert g() == g()"), "code", "every answer is Python with assert"),
        (("assert that it holds", "assert nothing"), "exact", "answers are text"),
    ],
)
def test_the_strictest_verifier_that_reads_every_answer(answers: tuple[Any, ...], verifier: str, reason: str) -> None:
    columns = guessed(*({"question": "?", "answer": answer} for answer in answers))
    assert (columns.verifier, columns.reason, columns.template) == (verifier, reason, "qa")


def test_columns_by_their_usual_names() -> None:
    columns = guessed({"id": 1, "Prompt": "How many?", "gold": 3, "source": "x"})
    assert columns.fields == {"question": "Prompt", "answer": "gold"}
    columns = guessed({"question": "Which?", "options": ["a", "b"], "answer": "a"})
    assert columns.fields == {"question": "question", "answer": "answer", "choices": "options"}
    assert (columns.verifier, columns.reason) == ("choice", "there are choices")


def test_a_worked_solution_is_the_gold_completion() -> None:
    columns = guessed({"question": "2 + 3?", "answer": "2 + 3 = 5\n#### 5"})
    assert columns.fields == {"question": "question", "answer": "answer", "completion": "answer"}
    assert (columns.verifier, columns.template) == ("number", "steps")


def test_a_comment_in_tests_is_no_worked_solution() -> None:
    columns = guessed({"question": "Write f.", "answer": "#### easy\nassert f(1) == 2"})
    assert (columns.verifier, columns.template) == ("code", "qa") and "completion" not in columns.fields


def test_what_is_given_wins() -> None:
    fields = {"question": "text", "answer": "label"}
    assert guessed({"text": "How many?", "answer": "3", "label": "4"}, fields=fields).fields == fields
    assert guessed({"question": "?", "answer": "3"}, verifier="exact").verifier == "exact"


def test_columns_that_nothing_is_known_about_are_named() -> None:
    with pytest.raises(UserError, match=r"rows.jsonl: .*\(text, label\) looks like the question"):
        guessed({"text": "How many?", "label": "3"})
    with pytest.raises(UserError, match="looks like the answer; say which with --fields answer:COLUMN"):
        guessed({"question": "How many?", "n": "3"})
    with pytest.raises(UserError, match="looks like the answer"):  # the second record has no answer
        guessed({"question": "How many?", "answer": "3"}, {"question": "How many?"})
