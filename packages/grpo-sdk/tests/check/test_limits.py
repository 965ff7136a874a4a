import pytest
from scoring_tasks import load, prompt

from grpo_sdk import BoundTask, Invalid, Task, load_task, reward, weighted_sum
from grpo_sdk.check.limits import form_rewards, highest_value, unearned_value


def blind(text, row):  # asks for the row as the documentation does, and does not read it
    if not text.isdecimal():
        raise Invalid("no number")
    return int(text)


def judging(text, row):
    return int(text) == row.a + row.b


@reward(0.3)
def number(answer):
    return 1.0


@reward(0.2)
def short(text):
    return float(len(text) < 9)


@reward(1.5)
def right(answer, row):
    return float(answer == row.a + row.b)


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
    return load_task(Task("sum", load, prompt, validate, rewards, **more))


def nested(text, row):
    return (lambda: row.a + row.b)()


@pytest.mark.parametrize(("validate", "names"), [
    (blind, ["number", "short"]),
    (judging, ["short"]),  # an answer of a validator that reads the row may be a verdict
    (nested, ["short"]),
])  # fmt: skip
def test_form_is_what_cannot_know_the_answer(validate, names: list[str]) -> None:
    assert [spec.name for spec in form_rewards(bound(validate))] == names


def test_limits_of_a_weighted_sum() -> None:
    task = bound(compose=weighted_sum(invalid=-0.4))
    row, *_ = task.rows()
    wrong, refused = task.score("4", row), task.score("four", row)
    assert highest_value(task, wrong) == highest_value(task, refused) == pytest.approx(0.3 + 0.2 + 1.5 + 0.1)
    assert unearned_value(task, wrong) == pytest.approx(0.3 + 0.2)
    assert unearned_value(task, refused) == pytest.approx(-0.4 + 0.2)


def test_a_composer_may_read_facts() -> None:
    task = bound(compose=lambda specs, parts, valid: parts["fact"] * valid)
    row, *_ = task.rows()
    assert highest_value(task, task.score("4", row)) == 7.0
