import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scoring_tasks import sums

from grpo_sdk import EvaluationDefaults, EvaluationReport, Score, TaskConfig, UserError
from grpo_sdk.scoring.metrics import MetricNames, Numbers, batch_numbers, known_names, reported_numbers, step_numbers
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.spec import TaskSpec


def bound(name: str = "code.run", metrics: Any = None, **options: Any) -> BoundTask:
    task = replace(sums, name=name.partition(".")[2], metrics=metrics, **options)
    return BoundTask(task, name, TaskConfig(), TaskSpec(name))


def count(scores: Sequence[Score]) -> Mapping[str, float]:
    return {"code/total": len(scores), "code/valid": sum(score.valid for score in scores)}


def nobody(name: str) -> str:
    return ""


def test_a_batch_is_all_its_scores_also_those_without_a_value() -> None:
    scores = [Score(1.0, valid=True), Score(None, fault="timeout"), Score(0.0)]
    assert batch_numbers(bound(metrics=count), scores) == Numbers({"code/total": 3.0, "code/valid": 1.0})
    assert batch_numbers(bound(), scores) == Numbers()


@pytest.mark.parametrize(("metrics", "values", "problem"), [
    (lambda batch: {"a/b": np.float32(0.5), "a/c": True}, {"a/b": 0.5, "a/c": 1.0}, ""),
    (lambda batch: {"plain": 1, "a/b": 2}, {"a/b": 2.0}, "'plain' must hold a '/'"),
    (lambda batch: {"a/b": math.nan}, {}, "'a/b' is nan; it is left out"),
    (lambda batch: {"a/b": "1"}, {}, "'a/b' is a str and no number"),
    (lambda batch: {"a/b": 10**400, "a/c": 1}, {"a/c": 1.0}, "'a/b' is an integer that no float holds"),
    (lambda batch: {3: 1}, {}, "3 is no name"),
    (lambda batch: {"a/\x1b[2J": 1}, {}, "is no name of at most 120 printable characters"),
    (lambda batch: [1, 2], {}, "gave a list, it must give numbers by name"),
    (lambda batch: None, {}, ""),
    (lambda batch: {"a/b": 1 / 0}, {}, "raised ZeroDivisionError (test_task_metrics.py:"),
])  # fmt: skip
def test_what_is_no_number_under_a_name_is_left_out_and_said(metrics: Any, values: Any, problem: str) -> None:
    found = batch_numbers(bound(metrics=metrics), [])
    assert found.values == values
    assert bool(found.problems) == bool(problem)
    for said in found.problems[:1]:
        assert said.startswith("task 'code.run': metrics()") and problem in said and len(said) < 400


@given(st.dictionaries(st.text() | st.integers(), st.floats() | st.text() | st.none()))
def test_only_finite_numbers_under_sound_names_come_through(made: Any) -> None:
    found = batch_numbers(bound(metrics=lambda scores: made), [])
    assert all(math.isfinite(value) and "/" in name for name, value in found.values.items())
    assert len(found.values) + len(found.problems) == len(made)


def test_each_name_has_one_owner() -> None:
    names = MetricNames(lambda name: "grpo-core" if name == "grad/norm" else "")
    asked = [("a/b", "x.one"), ("a/b", "x.one"), ("a/b", "x.two"), ("grad/norm", "x.one"), ("a/d", "x.one")]
    assert [names.claim(*each) for each in asked] == ["", "", "x.one", "grpo-core", ""]
    found = names.claimed(Numbers({"a/b": 1.0, "a/c": 2.0}, ("before",)), "x.two")
    assert found.values == {"a/c": 2.0}
    assert found.problems == ("before", "x.two logs 'a/b', which is x.one's already; call it otherwise")
    several = names.claimed(Numbers({"a/b": 1.0, "a/c": 2.0, "a/d": 2.0}), "x.three").problems
    assert several == (  # one an owner
        "x.three logs 'a/b' and more, which are x.one's already; call them otherwise",
        "x.three logs 'a/c', which is x.two's already; call it otherwise",
    )


def test_names_that_are_known_at_the_start_are_refused_there() -> None:
    one, two = bound("x.one", count), bound("y.two", lambda scores: {"code/total": 0, "y/own": 1})
    with pytest.raises(UserError, match=r"task y\.two logs 'code/total', which is x\.one's already"):
        known_names([one, two], nobody)
    with pytest.raises(UserError, match=r"x\.one logs 'code/total', which is grpo-core's already"):
        known_names([one], lambda name: "grpo-core")


def test_a_step_has_one_batch_a_task_and_refuses_a_late_name_when_it_comes() -> None:
    def late(scores: Sequence[Score]) -> Mapping[str, float]:
        return {"code/total": 1.0, "y/mean": sum(score.valid for score in scores) / len(scores)}

    one, two = bound("x.one", count), bound("y.two", late)
    tasks = {"x.one?seed=1": one, "x.one?seed=2": one, "y.two": two}
    labels = ["x.one?seed=1", "y.two", "x.one?seed=2", "x.one?seed=2"]
    found = step_numbers(tasks, labels, [Score(1.0, valid=True)] * 4, known_names([*tasks.values()], nobody))
    problem = "y.two logs 'code/total', which is x.one's already; call it otherwise"
    assert found["x.one"] == Numbers({"code/total": 3.0, "code/valid": 3.0})
    assert found["y.two"] == Numbers({"y/mean": 1.0}, (problem,))


def reported(report: Any) -> Numbers:
    """What is taken from a report of an evaluation."""
    task = bound("x.one", evaluation=None if report is None else lambda config: EvaluationDefaults(report=report))
    made = EvaluationReport(
        task=task.name, config=task.config, phase="final", step=3, results={}, records=[], seconds=0.5, folder=Path("x")
    )
    return reported_numbers(task, made)


def full(report: EvaluationReport) -> Mapping[str, float]:
    raise OSError(28, "No space left on device")


def test_a_report_is_checked_likewise() -> None:
    found = reported(lambda report: {"x/step": report.step, "x/seconds": report.seconds, "bad": 1})
    assert found.values == {"x/step": 3.0, "x/seconds": 0.5}
    assert found.problems == ("task 'x.one': report(): 'bad' must hold a '/', as in 'task/number'; it is left out",)
    assert "report() raised OSError" in reported(full).problems[0]
    assert reported(None) == Numbers()
