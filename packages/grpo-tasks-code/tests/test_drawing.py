from __future__ import annotations

import pytest

from grpo_core import Score
from grpo_tasks_code.plugin import grpo_draw_rollout

PROGRAM = "```python\nprint(1)\n```"


@pytest.mark.parametrize(
    ("score", "verdict"),
    [
        (Score(1.0, {"ran": 1.0}, valid=True, solved=True), "sandbox: ran"),
        (Score(0.5, {"ran": 1.0}, valid=True), "sandbox: ran without output"),
        (Score(-1.0, {"ran": 0.0}, valid=True), "sandbox: failed"),
        (Score(-1.0, {"ran": 0.0, "timed_out": 1.0}, valid=True), "sandbox: ran too long"),
        (Score(-0.5, {"uncompilable": 1.0}, valid=True), "sandbox: does not compile"),
        (Score(1.0, {"tests": 1.0}, valid=True, solved=True), "sandbox: all tests pass"),
        (Score(0.0, {"tests": 0.0}, valid=True, why="tests 0 of 1"), "sandbox: tests 0 of 1"),
        (Score(None, fault="timeout"), "sandbox: not scored (timeout)"),
    ],
)
def test_a_program_stands_below_its_verdict(score: Score, verdict: str) -> None:
    (frame,) = grpo_draw_rollout("execution", {}, PROGRAM, score)
    assert (frame.caption, frame.text.strip()) == (verdict, "print(1)")


def test_a_prediction_stands_below_the_program() -> None:
    (frame,) = grpo_draw_rollout("output_prediction", {"source": "print(2)"}, "2", Score(1.0, solved=True))
    assert frame.text == "print(2)"


def test_no_program_is_said() -> None:
    (frame,) = grpo_draw_rollout("execution", {}, "", Score(0.0))
    assert frame.caption.startswith("no program") and not frame.text
