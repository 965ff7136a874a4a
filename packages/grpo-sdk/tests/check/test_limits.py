import pytest

from grpo_sdk import BoundTask, Invalid, Row, Task, graduated, load_task, reward
from grpo_sdk.check.limits import form_rewards, highest_value, unearned_value


class Sum(Row):
    result: int


def load() -> list[Sum]:
    return [Sum(id="1+2", gold="3", result=3)]


def blind(text, row):  # asks for the row as the documentation does, and does not read it
    if not text.isdecimal():
        raise Invalid("no number")
    return int(text)


def judging(text, row):
    return int(text) == row.result


@reward(0.3)
def number(answer):
    return 1.0


@reward(0.2)
def short(text):
    return float(len(text) < 9)


@reward(1.5)
def right(answer, row):
    return float(answer == row.result)


@reward(0.1, needs="right")
def neat(text):
    return 1.0


@reward(-1.0)
def slow(text):
    return 0.0


@reward(0.0)
def fact(text):
    return 7.0


def bound(validate=blind, rewards=(number, short, right, neat, slow, fact), **more) -> BoundTask:  # type: ignore[no-untyped-def]
    return load_task(Task("sum", load, lambda row: "1+2=", validate, rewards, row=Sum, **more))


def nested(text, row):
    return (lambda: row.result)()


@pytest.mark.parametrize(("validate", "names"), [
    (blind, ["number", "short"]),
    (judging, ["short"]),  # an answer of a validator that reads the row may be a verdict
    (nested, ["short"]),
])  # fmt: skip
def test_form_is_what_cannot_know_the_answer(validate, names: list[str]) -> None:
    assert [spec.name for spec in form_rewards(bound(validate))] == names


def test_limits_of_a_weighted_sum() -> None:
    task = bound()
    (row,) = task.rows()
    wrong, refused = task.score("4", row), task.score("four", row)
    assert highest_value(task, wrong) == pytest.approx(0.3 + 0.2 + 1.5 + 0.1)
    assert unearned_value(task, wrong) == pytest.approx(0.3 + 0.2)
    assert unearned_value(task, refused) == pytest.approx(0.2)


def test_limits_of_a_composer_with_an_invalid_value() -> None:
    task = bound(rewards=(number, right), compose=graduated(invalid=-0.3))
    (row,) = task.rows()
    assert unearned_value(task, task.score("four", row)) == pytest.approx(-0.3)
    assert unearned_value(task, task.score("4", row)) == pytest.approx(0.2)
    assert highest_value(task, task.score("four", row)) == pytest.approx(1.0)


def test_a_composer_may_read_facts() -> None:
    task = bound(compose=lambda specs, parts, valid: parts["fact"] * valid)
    (row,) = task.rows()
    assert highest_value(task, task.score("4", row)) == 7.0
