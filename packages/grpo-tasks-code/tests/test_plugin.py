"""What every task of the package has beside the laws that tests/test_conformance.py holds them to."""

import importlib
from pathlib import Path

import pytest
from dataset_rows import with_rows

from grpo_sdk import Diagnosis, Score, load_task
from grpo_tasks_code import sandbox, sandboxed
from grpo_tasks_code.plugin import grpo_diagnostics, grpo_draw_rollout, grpo_tasks

RUN_PROGRAMS = ("execution", "computed", "prediction_game", "mbpp", "mbpp_retry", "humaneval?split=test")


def test_the_plugin_gives_its_tasks_easiest_first() -> None:
    names = "execution computed output_prediction prediction_game mbpp mbpp_retry humaneval"
    assert [task.name for task in grpo_tasks()] == names.split()


def test_the_doctor_can_ask_for_the_sandbox() -> None:
    module, _, function = grpo_diagnostics()["sandbox"].partition(":")
    diagnoses = list(getattr(importlib.import_module(module), function)())
    assert diagnoses and all(isinstance(one, Diagnosis) for one in diagnoses)


@pytest.mark.parametrize("name", RUN_PROGRAMS)
def test_a_task_that_runs_programs_says_how_they_are_isolated_and_abstains_without(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = load_task(with_rows(f"code.{name}", tmp_path))
    found = sandbox.level()
    assert task.conditions["sandbox"].startswith(f"{found.name} {found.title}: {found.guarantee}")
    broken = sandbox.Execution("sandbox_error", "", "the server died", 0.0, 0.0, "L2")
    tested = sandbox.TestResult(0, 1, [False], ["sandbox_error"], ["it broke"], "L2", broken)
    monkeypatch.setattr(sandboxed, "run", lambda *args, **options: broken)
    monkeypatch.setattr(sandboxed, "run_tests", lambda *args, **options: tested)
    predictions = None if task.opponent is None else ("1",) * task.opponent.samples
    score = task.score("print(1)", task.rows()[0], predictions)
    assert (score.value, score.fault) == (None, "infrastructure") and "the server died" in score.why


@pytest.mark.parametrize(("score", "verdict"), [
    (Score(1.0, {"ran": 1.0}, valid=True, solved=True), "sandbox: ran"),
    (Score(-1.0, {"ran": 0.0}, valid=True), "sandbox: failed"),
    (Score(-0.5, {"uncompilable": 1.0}, valid=True), "sandbox: does not compile"),
    (Score(1.0, {"tests": 1.0}, valid=True, solved=True), "sandbox: all tests pass"),
    (Score(0.0, {"tests": 0.0}, valid=True, why="tests 0 of 1"), "sandbox: tests 0 of 1"),
    (Score(None, fault="timeout"), "sandbox: not scored (timeout)"),
])  # fmt: skip
def test_a_program_is_drawn_below_its_verdict(score: Score, verdict: str) -> None:
    (frame,) = grpo_draw_rollout("execution", {}, "```python\nprint(1)\n```", score)
    assert (frame.caption, frame.text.strip()) == (verdict, "print(1)")


def test_what_is_drawn_without_a_program_of_the_completion() -> None:
    (frame,) = grpo_draw_rollout("output_prediction", {"source": "print(2)"}, "2", Score(1.0, solved=True))
    assert frame.text == "print(2)"
    (frame,) = grpo_draw_rollout("execution", {}, "", Score(0.0))
    assert frame.caption.startswith("no program") and not frame.text
