from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from grpo_core import GrpoError, Invalid, Row, Score, Task, TaskConfig, UserError, graduated, ladder, reward


class Sum(Row):
    a: int
    b: int


class Extra(Row):
    note: Any = None


def load(config) -> Iterable[Sum]:
    return [Sum(id="1+2", gold="3", a=1, b=2)]


def prompt(row):
    return f"{row.a} + {row.b} ="


def validate(text, row):
    if not text.strip().isdigit():
        raise Invalid("no number")
    return int(text)


@reward()
def exact(answer, row):
    return float(answer == row.a + row.b)


def make(**changes: Any) -> Task:
    parts = {"name": "add", "load": load, "prompt": prompt, "validate": validate, "rewards": (exact,), **changes}
    return Task(**parts)


# Rows


def test_a_row_is_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Sum(id="x", a=1, b=2).a = 3


def test_a_row_refuses_fields_that_it_does_not_have() -> None:
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        Sum(id="x", a=1, b=2, c=3)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_row_refuses_numbers_that_json_cannot_write(value: float) -> None:
    with pytest.raises(ValidationError, match="finite number"):
        Row(id="x", difficulty=value)


TEXT = st.text(st.characters(codec="utf-8"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


@given(
    id=TEXT, gold=st.none() | TEXT, difficulty=st.none() | st.floats(allow_nan=False, allow_infinity=False), note=JSON
)
def test_a_row_survives_json(id: str, gold: str | None, difficulty: float | None, note: Any) -> None:
    row = Extra(id=id, gold=gold, difficulty=difficulty, note=note)

    assert Extra.model_validate_json(row.model_dump_json()) == row


def test_options_refuse_what_they_do_not_have_and_a_size_of_nothing() -> None:
    with pytest.raises(ValidationError):
        TaskConfig(sise=3)
    with pytest.raises(ValidationError, match="greater than or equal to 1"):
        TaskConfig(size=0)
    with pytest.raises(ValidationError, match="'train', 'validation' or 'test'"):
        TaskConfig(split="dev")


# Scores


def test_a_score_abstains_exactly_where_it_has_no_value() -> None:
    assert Score(None, fault="timeout").abstained
    assert not Score(0.0).abstained


# Tasks


def test_four_contributions_and_a_name_suffice() -> None:
    task = Task("add", load, prompt, validate, (exact,))

    assert (task.version, task.timeout_s, task.max_turns, task.stop) == ("0", 5.0, 1, ())
    assert [(spec.name, spec.weight) for spec in task.specs()] == [("exact", 1.0)]


def test_everything_else_is_given_by_keyword() -> None:
    with pytest.raises(TypeError):
        Task("add", load, prompt, validate, (exact,), TaskConfig)


def test_a_task_is_frozen() -> None:
    with pytest.raises(AttributeError):
        make().name = "other"


def ladder_of_two() -> Task:
    return make(compose=ladder(levels=(0.0, 0.5, 1.0)))


def unknown_argument() -> Task:
    def exakt(anwser):
        return 1.0

    return make(rewards=(exakt,))


def needs_a_later_one() -> Task:
    @reward(needs="exact")
    def close(answer):
        return 1.0

    return make(rewards=(close, exact))


def needs_a_misspelt_one() -> Task:
    @reward(needs="exat")
    def close(answer):
        return 1.0

    return make(rewards=(exact, close))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: make(name=""), "task name '': use letters, digits and _"),
        (lambda: make(name="two words"), "task name 'two words': use letters"),
        (lambda: make(name="plugin/add"), "task name 'plugin/add'"),
        (lambda: make(stop="\n"), r"task 'add': stop='\n' must be a tuple of strings, e.g. ('\n',)."),
        (lambda: make(stop=("\n", "")), "task 'add': an empty stop string"),
        (lambda: make(timeout_s=0), "task 'add': timeout_s=0 must be a finite time above 0 seconds"),
        (lambda: make(timeout_s=math.nan), "task 'add': timeout_s=nan"),
        (lambda: make(max_completion_length=0), "task 'add': max_completion_length=0 must be at least 1"),
        (lambda: make(order="lader"), "task 'add': order='lader' must be shuffled or ladder"),
        (lambda: make(on_timeout="wrong"), "task 'add': on_timeout='wrong' must be abstain or fail"),
        (lambda: make(max_turns=0), "task 'add': max_turns=0 must be at least 1"),
        (lambda: make(rewards=()), "task 'add' has no rewards; give at least one function marked with @reward"),
        (lambda: make(rewards=exact), "task 'add': rewards=exact must be a tuple, e.g. (exact,)"),
        (lambda: make(rewards=(exact, exact)), "task 'add' has two rewards named 'exact'"),
        (
            unknown_argument,
            "task 'add': reward exakt() takes 'anwser'; it may take answer, row, text, config, "
            "predictions. Did you mean 'answer'?",
        ),
        (
            needs_a_later_one,
            "task 'add': reward close() needs 'exact', which is not an earlier reward (it is the first)",
        ),
        (
            needs_a_misspelt_one,
            "reward close() needs 'exat', which is not an earlier reward (exact). Did you mean 'exact'?",
        ),
        (
            ladder_of_two,
            "task 'add': a ladder of 3 levels needs 2 criteria (one reward each, penalties and weight 0 apart), "
            "the task has 1",
        ),
        (lambda: make(load=lambda config, spilt: []), "task 'add': load: <lambda>() takes 'spilt'"),
        (
            lambda: make(prompt=lambda row, confg: ""),
            "prompt: <lambda>() takes 'confg'; it may take row, config. Did you mean 'config'?",
        ),
        (lambda: make(validate=lambda text, row, cfg: 0), "task 'add': validate: <lambda>() takes 'cfg'"),
        (
            lambda: make(solved=lambda answer, row, part: True),
            "task 'add': solved: <lambda>() takes 'part'; it may take "
            "answer, row, text, parts, config. Did you mean 'parts'?",
        ),
    ],
)
def test_a_mistake_is_told_when_the_task_is_made(build: partial[Task], message: str) -> None:
    with pytest.raises(UserError) as caught:
        build()

    assert message in str(caught.value)
    assert isinstance(caught.value, GrpoError)


def test_the_least_that_is_allowed_is_accepted() -> None:
    assert make(max_completion_length=1, max_turns=1, timeout_s=1e-3, name="a.b")


def test_a_ladder_that_fits_is_accepted() -> None:
    assert make(compose=ladder(levels=(0.0, 1.0)))
    assert make(compose=graduated())


# The class of the rows


def test_the_row_class_is_read_from_the_annotation_of_load() -> None:
    assert make().row_type() is Sum


def test_every_iterable_says_its_row_class() -> None:
    def listed(config) -> list[Sum]: ...
    def iterated(config) -> Iterator[Sum]: ...
    def many(config) -> tuple[Sum, ...]: ...

    assert {make(load=load).row_type() for load in (listed, iterated, many)} == {Sum}


def test_an_explicit_row_class_wins() -> None:
    assert make(row=Extra).row_type() is Extra


def test_without_either_the_message_says_both_ways() -> None:
    def unannotated(config): ...
    def of_no_row(config) -> list[str]: ...
    def of_a_name_that_is_not_there(config) -> Iterable[Missing]: ...  # type: ignore[name-defined] # noqa: F821 # on purpose

    for load in (unannotated, of_no_row, of_a_name_that_is_not_there, partial(unannotated)):
        with pytest.raises(UserError, match=r"task 'add': the class of its rows is unknown\. Annotate load\(\) -> "):
            make(load=load).row_type()
