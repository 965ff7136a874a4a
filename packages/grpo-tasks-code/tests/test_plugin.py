"""What every task of the package has beside the laws that tests/test_conformance.py holds them to."""

import importlib
from pathlib import Path

import orjson
import pytest

from grpo_sdk import BoundTask, Diagnosis, Score, load_task
from grpo_tasks_code import sandbox, sandboxed
from grpo_tasks_code.plugin import grpo_diagnostics, grpo_draw_rollout, grpo_tasks

MBPP = {
    "text": "Write a function to double a number.",
    "code": "def twice(n):\n    return 2 * n",
    "task_id": 11,
    "test_list": ["assert twice(2) == 4", "assert twice(0) == 0"],
}
HUMANEVAL = {
    "task_id": "HumanEval/0",
    "prompt": 'def twice(n):\n    """Double a number."""\n',
    "canonical_solution": "    return 2 * n\n",
    "test": "def check(candidate):\n    assert candidate(2) == 4\n",
    "entry_point": "twice",
}
RECORDS = {"mbpp": MBPP, "mbpp_retry": MBPP, "humaneval": HUMANEVAL}
NAMES = ("execution", "computed", "output_prediction", "prediction_game", *RECORDS)
RUNS_PROGRAMS = [name for name in NAMES if name != "output_prediction"]


def task_of(name: str, folder: Path) -> BoundTask:
    """A task, with one row where its data is elsewhere."""
    if name not in RECORDS:
        return load_task(f"code.{name}?size=4")
    (folder / "rows.jsonl").write_bytes(orjson.dumps(RECORDS[name]))
    return load_task(f"code.{name}?split=test&path={folder}/rows.jsonl")


def predictions(task: BoundTask) -> tuple[str, ...] | None:
    return None if task.opponent is None else ("1",) * task.opponent.samples


def test_the_plugin_gives_its_tasks_easiest_first() -> None:
    assert tuple(task.name for task in grpo_tasks()) == NAMES


def test_the_doctor_can_ask_for_the_sandbox() -> None:
    module, _, function = grpo_diagnostics()["sandbox"].partition(":")
    diagnoses = list(getattr(importlib.import_module(module), function)())
    assert diagnoses and all(isinstance(one, Diagnosis) for one in diagnoses)


@pytest.mark.parametrize("name", RUNS_PROGRAMS)
def test_a_task_that_runs_programs_says_how_they_are_isolated_and_abstains_without(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = task_of(name, tmp_path)
    found = sandbox.level()
    assert task.conditions["sandbox"].startswith(f"{found.name} {found.title}: {found.guarantee}")
    broken = sandbox.Execution("sandbox_error", "", "the server died", 0.0, 0.0, "L2")
    tested = sandbox.TestResult(0, 1, [False], ["sandbox_error"], ["it broke"], "L2", broken)
    monkeypatch.setattr(sandboxed, "run", lambda *args, **options: broken)
    monkeypatch.setattr(sandboxed, "run_tests", lambda *args, **options: tested)
    score = task.score("print(1)", task.rows()[0], predictions(task))
    assert (score.value, score.fault) == (None, "infrastructure") and "the server died" in score.why


@pytest.mark.parametrize("name", ["computed", "output_prediction", "prediction_game"])
def test_there_are_enough_rows_to_evaluate(name: str) -> None:
    assert len(load_task(f"code.{name}?split=test&size=512").rows()) == 512


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
