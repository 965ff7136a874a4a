from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_core import EvaluationDefaults, EvaluationReport, Row, Score, Task, TaskConfig, UserError, reward
from grpo_core.scoring.metrics import MetricNames, Numbers, batch_numbers, known_names, reported_numbers, step_numbers
from grpo_core.task.bound import BoundTask
from grpo_core.task.spec import TaskSpec


def load(config) -> Iterable[Row]:
    return [Row(id="1")]


@reward()
def right(answer):
    return 1.0


def bound(name: str, metrics: Any = None, **options: Any) -> BoundTask:
    task = Task(
        name.partition(".")[2], load, lambda row: "p", lambda text, row: text, (right,), metrics=metrics, **options
    )
    return BoundTask(task, name, TaskConfig(), TaskSpec(name))


def count(scores: Sequence[Score]) -> Mapping[str, float]:
    return {"code/total": len(scores), "code/valid": sum(score.valid for score in scores)}


def test_a_batch_is_all_its_scores_also_those_without_a_value() -> None:
    scores = [Score(1.0, valid=True), Score(None, fault="timeout"), Score(0.0)]
    assert batch_numbers(bound("code.run", count), scores) == Numbers({"code/total": 3.0, "code/valid": 1.0})
    assert batch_numbers(bound("code.run"), scores) == Numbers()


def test_arguments_may_have_names_of_their_own() -> None:
    assert batch_numbers(bound("code.run", lambda batch: {"a/b": len(batch)}), [Score(1.0)]).values == {"a/b": 1.0}


@pytest.mark.parametrize(
    ("given_", "values", "problem"),
    [
        ({"a/b": np.float32(0.5), "a/c": True}, {"a/b": 0.5, "a/c": 1.0}, ""),
        ({"plain": 1, "a/b": 2}, {"a/b": 2.0}, "'plain' must hold a '/'"),
        ({"/a": 1, "b/": 1}, {}, "'/a' must hold a '/'"),
        ({"a/b": math.nan}, {}, "'a/b' is nan; it is left out"),
        ({"a/b": -math.inf, "a/c": 1}, {"a/c": 1.0}, "'a/b' is -inf"),
        ({"a/b": "1"}, {}, "'a/b' is a str and no number"),
        ({"a/b": 10**400, "a/c": 1}, {"a/c": 1.0}, "'a/b' is an integer that no float holds"),
        ({"a/b": None}, {}, "'a/b' is a NoneType and no number"),
        ({3: 1}, {}, "3 is no name"),
        ({"a/" + "x" * 200: 1}, {}, "is no name of at most 120 printable characters"),
        ({"a/\x1b[2J": 1}, {}, "is no name of at most 120 printable characters"),
        ([1, 2], {}, "gave a list, it must give numbers by name"),
        (None, {}, ""),
    ],
)
def test_what_is_no_number_under_a_name_is_left_out_and_said(given_: Any, values: Any, problem: str) -> None:
    found = batch_numbers(bound("code.run", lambda scores: given_), [])
    assert found.values == values
    assert bool(found.problems) == bool(problem)
    if problem:
        assert found.problems[0].startswith("task 'code.run': metrics()")
        assert problem in found.problems[0]
        assert len(found.problems[0]) < 400


def test_a_crash_is_the_tasks_and_ends_nothing() -> None:
    (problem,) = batch_numbers(bound("code.run", lambda scores: {"a/b": 1 / len(scores)}), []).problems
    assert problem.startswith("task 'code.run': metrics() raised ZeroDivisionError (test_task_metrics.py:")
    assert batch_numbers(bound("code.run", lambda scores: exit(3)), []).problems


@given(st.dictionaries(st.text() | st.integers(), st.floats() | st.text() | st.none()))
def test_only_finite_numbers_under_sound_names_come_through(made: Any) -> None:
    found = batch_numbers(bound("code.run", lambda scores: made), [])
    assert all(math.isfinite(value) and "/" in name for name, value in found.values.items())
    assert len(found.values) + len(found.problems) == len(made)


def test_each_name_has_one_owner() -> None:
    names = MetricNames(lambda name: "grpo-core" if name == "grad/norm" else "")
    assert names.claim("a/b", "x.one") == ""
    assert names.claim("a/b", "x.one") == "", "its owner logs it every step"
    assert names.claim("a/b", "x.two") == "x.one"
    assert names.claim("grad/norm", "x.one") == "grpo-core"
    found = names.claimed(Numbers({"a/b": 1.0, "a/c": 2.0}, ("before",)), "x.two")
    assert found.values == {"a/c": 2.0}
    assert found.problems == ("before", "x.two logs 'a/b', which is x.one's already; call it otherwise")
    several = names.claimed(Numbers({"a/b": 1.0, "a/c": 2.0}), "x.three").problems
    assert [problem.partition("'")[0] for problem in several] == ["x.three logs ", "x.three logs "]  # one an owner
    names.claim("a/d", "x.one")
    assert names.claimed(Numbers({"a/b": 1.0, "a/d": 2.0}), "x.two").problems == (
        "x.two logs 'a/b' and more, which are x.one's already; call them otherwise",
    )


def test_names_that_are_known_at_the_start_are_refused_there() -> None:
    one, two = bound("x.one", count), bound("y.two", lambda scores: {"code/total": 0, "y/own": 1})
    with pytest.raises(UserError, match=r"task y\.two logs 'code/total', which is x\.one's already"):
        known_names([one, two], lambda name: "")
    with pytest.raises(UserError, match=r"x\.one logs 'code/total', which is grpo-core's already"):
        known_names([one], lambda name: "grpo-core")
    names = known_names([one, bound("z.late", lambda scores: {"z/mean": sum(scores) / len(scores)})], lambda name: "")
    assert names.claim("code/total", "z.late") == "x.one"
    assert names.claim("z/mean", "z.late") == "", "it is known when it is first logged"


def test_a_task_that_is_there_twice_is_one_batch() -> None:
    tasks = {"x.one?seed=1": bound("x.one", count), "x.one?seed=2": bound("x.one", count), "y.two": bound("y.two")}
    labels = ["x.one?seed=1", "y.two", "x.one?seed=2", "x.one?seed=2"]
    found = step_numbers(
        tasks, labels, [Score(1.0, valid=True)] * 4, known_names(list(tasks.values()), lambda name: "")
    )
    assert found == {"x.one": Numbers({"code/total": 3.0, "code/valid": 3.0}), "y.two": Numbers()}


def test_a_name_that_comes_late_is_refused_when_it_comes() -> None:
    def late(scores: Sequence[Score]) -> Mapping[str, float]:
        return {"code/total": 1.0} if scores else {}

    tasks = {"x.one": bound("x.one", count), "y.two": bound("y.two", late)}
    names = known_names(list(tasks.values()), lambda name: "")
    found = step_numbers(tasks, ["x.one", "y.two"], [Score(1.0)] * 2, names)
    assert found["x.one"].values["code/total"] == 1.0
    assert found["y.two"] == Numbers({}, ("y.two logs 'code/total', which is x.one's already; call it otherwise",))


def report_of(task: BoundTask) -> EvaluationReport:
    return EvaluationReport(
        task=task.name, config=task.config, phase="final", step=3, results={}, records=[], seconds=0.5, folder=Path("x")
    )


def test_a_report_is_checked_likewise() -> None:
    def tell(report: EvaluationReport) -> Mapping[str, float]:
        return {"x/step": report.step, "x/seconds": report.seconds, "bad": 1}

    told = bound("x.one", evaluation=lambda config: EvaluationDefaults(report=tell))
    found = reported_numbers(told, report_of(told))
    assert found.values == {"x/step": 3.0, "x/seconds": 0.5}
    assert found.problems == ("task 'x.one': report(): 'bad' must hold a '/', as in 'task/number'; it is left out",)

    def full(report: EvaluationReport) -> Mapping[str, float]:
        raise OSError(28, "No space left on device")

    broken = bound("x.one", evaluation=lambda config: EvaluationDefaults(report=full))
    assert "report() raised OSError" in reported_numbers(broken, report_of(broken)).problems[0]
    silent = bound("x.one")
    assert reported_numbers(silent, report_of(silent)) == Numbers()
