from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import pytest
from pydantic import ValidationError
from scoring_tasks import Sum, load, prompt, validate

from grpo_sdk import Row, Task, TaskConfig, UserError, ladder, reward


@reward()
def exact(answer, row):
    return float(answer == row.a + row.b)


def make(**changes: Any) -> Task:
    parts = {"name": "add", "load": load, "prompt": prompt, "validate": validate, "rewards": (exact,), **changes}
    return Task(**parts)


@pytest.mark.parametrize(("build", "message"), [
    (lambda: Sum(id="x", a=1, b=2, c=3), "Extra inputs are not permitted"),
    (lambda: Row(id="x", difficulty=math.nan), "finite number"),
    (lambda: setattr(Sum(id="x", a=1, b=2), "a", 3), "frozen"),
    (lambda: TaskConfig(size=0), "greater than or equal to 1"),
])  # fmt: skip
def test_rows_and_options_refuse_what_they_cannot_hold(build: Callable[[], object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        build()


def test_four_contributions_and_a_name_suffice_and_the_rest_is_given_by_keyword() -> None:
    task = Task("add", load, prompt, validate, (exact,))
    assert (task.version, task.timeout_s, task.max_turns, task.stop) == ("0", 5.0, 1, ())
    assert [(spec.name, spec.weight) for spec in task.specs()] == [("exact", 1.0)]
    with pytest.raises(AttributeError):
        task.name = "other"
    with pytest.raises(TypeError):
        Task("add", load, prompt, validate, (exact,), TaskConfig)


def close_to(needs: str) -> Callable[..., float]:
    @reward(needs=needs)
    def close(answer):
        return 1.0

    return close


@pytest.mark.parametrize(("changes", "message"), [
    ({"name": "two words"}, "task name 'two words'"),
    ({"stop": "\n"}, r"stop='\\n' must be a tuple of strings"),
    ({"stop": ("\n", "")}, "an empty stop string"),
    ({"timeout_s": 0}, "timeout_s=0 must be a finite time above 0"),
    ({"max_completion_length": 0}, "max_completion_length=0 must be at least 1"),
    ({"order": "lader"}, "order='lader' must be shuffled or ladder"),
    ({"max_turns": 0}, "max_turns=0 must be a whole number from 1"),
    ({"max_calls": 2.5}, r"max_calls=2\.5 must be a whole number from 1"),
    ({"rewards": ()}, "has no rewards"),
    ({"rewards": exact}, r"rewards=exact must be a tuple, e\.g\. \(exact,\)"),
    ({"rewards": (exact, exact)}, "two rewards named 'exact'"),
    ({"rewards": (lambda anwser: 1.0,)}, "reward <lambda>.* takes 'anwser'.*predictions.*mean 'answer'"),
    ({"rewards": (close_to("exact"), exact)}, r"close\(\) needs 'exact'.*not an earlier reward \(it is the first"),
    ({"rewards": (exact, close_to("exat"))}, r"needs 'exat'.*not an earlier reward \(exact\)\..*mean 'exact'"),
    ({"compose": ladder(levels=(0.0, 0.5, 1.0))}, "ladder of 3 levels needs 2 criteria .*the task has 1"),
    ({"prompt": lambda row, confg: ""}, "prompt: <lambda>.* takes 'confg'; it may take row, config.*'config'"),
    ({"solved": lambda answer, row, part: True}, "solved: <lambda>.* takes 'part'; .*parts, config.*'parts'"),
])  # fmt: skip
def test_a_mistake_is_told_when_the_task_is_made(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make(**changes)


def test_the_least_that_is_allowed_is_accepted() -> None:
    assert make(max_completion_length=1, max_turns=1, timeout_s=1e-3, name="a.b")
    assert make(compose=ladder(levels=(0.0, 1.0)))


# The class of the rows


def listed(config) -> list[Sum]: ...


def iterated(config) -> Iterator[Sum]: ...


def many(config) -> tuple[Sum, ...]: ...


def unannotated(config): ...


def of_no_row(config) -> list[str]: ...


def of_a_name_that_is_not_there(config) -> Iterable[Missing]: ...  # type: ignore[name-defined] # noqa: F821 # on purpose


def test_the_row_class_is_read_from_the_annotation_of_load_or_given() -> None:
    assert {make(load=each).row_type() for each in (load, listed, iterated, many)} == {Sum}
    assert make(row=Row).row_type() is Row


@pytest.mark.parametrize("load", [unannotated, of_no_row, of_a_name_that_is_not_there, partial(unannotated)])
def test_without_either_the_message_says_both_ways(load: Callable[..., object]) -> None:
    with pytest.raises(UserError, match=r"'add': the class of its rows is unknown\. Annotate load\(\) -> .*row="):
        make(load=load).row_type()
