"""A file of completions is scored in order, line by line; a wrong line is named and stops nothing."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from grpo_core import Scorer, load_task
from grpo_core.scoring import completion_file
from grpo_core.scoring.completion_file import FileSummary, LineScore, score_lines

TASKS = Path(__file__).parents[1] / "support" / "scoring_tasks.py"
WHOLE_ROW = {"id": "of-elsewhere", "gold": "5", "a": 2, "b": 3}


def scored(*lines: Any, task: str = "bounded", **options: Any) -> list[LineScore]:
    data = b"\n".join(line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines)
    with Scorer(f"{TASKS}:{task}", workers=1, **options) as scorer:
        return list(score_lines(scorer, io.BytesIO(data)))


def test_rows_are_given_by_id_or_whole_and_scores_come_in_order() -> None:
    results = scored(
        {"row": "2+2", "completion": "4"},
        b"",
        {"row": WHOLE_ROW, "completion": "5", "other": [1]},
        {"row": "3+3", "text": "7"},
    )
    assert [(result.line, result.row) for result in results] == [(1, "2+2"), (3, "of-elsewhere"), (4, "3+3")]
    assert [result.score and result.score.solved for result in results] == [True, True, False]


def test_integers_of_any_length_are_exact() -> None:
    line = json.dumps({"row": {**WHOLE_ROW, "a": 2**64 + 1}, "completion": "5"}).encode()
    _, row, _ = completion_file._LineReader(load_task(f"{TASKS}:bounded")).read(line)
    assert row.model_dump()["a"] == 2**64 + 1


def test_a_score_that_takes_long_is_told_of_while_it_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion_file, "ASK_EVERY_S", 0.01)
    told: list[None] = []
    file = io.BytesIO(json.dumps({"row": "2+2", "completion": str(3 * 10**17)}).encode())
    with Scorer(f"{TASKS}:bounded", workers=1) as scorer:
        assert [each.line for each in score_lines(scorer, file, lambda: told.append(None))] == [1]
    assert told


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"{", "not JSON"),
        (b"[]", "a list where an object"),
        ({"row": "2+2"}, "no completion"),
        ({"row": "2+2", "completion": 4}, "no completion"),
        ({"completion": "4"}, "no row"),
        ({"row": "2+22", "completion": "4"}, "no row '2+22' among its 5. Did you mean '2+2'?"),
        ({"row": {"id": "x", "a": "?"}, "completion": "4"}, "does not fit Sum"),
        (b'{"completion": "4", "row": {"id": "x", "a": ' + b"[" * 300 + b"]" * 300 + b"}}", "recursion limit exceeded"),
    ],
)
def test_a_wrong_line_is_named_and_stops_nothing(line: Any, problem: str) -> None:
    wrong, right = scored(line, {"row": "2+2", "completion": "4"})
    assert wrong.score is None
    assert (wrong.line, problem in wrong.problem) == (1, True), wrong.problem
    assert right.score is not None and right.score.solved


def test_a_line_without_end_is_skipped_in_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion_file, "MAX_LINE_BYTES", 100)
    wrong, right = scored(b"x" * 1000, {"row": "2+2", "completion": "4"})
    assert "longer than 100 bytes" in wrong.problem
    assert (right.line, right.score and right.score.solved) == (2, True)


def test_a_completion_that_hangs_abstains_and_is_counted() -> None:
    summary = FileSummary()
    lines = [{"row": "2+2", "completion": "spin"}, {"row": "2+2", "completion": "4"}, b"{"]
    results = list(summary.counted(scored(*lines, task="sums", timeout_s=0.5)))
    assert results[0].score is not None and results[0].score.fault == "timeout"
    assert (summary.lines, summary.abstained, summary.solved, summary.wrong) == (2, 1, 1, 1)
    assert summary.mean == 2.0
    assert summary.abstained_share == 0.5


def test_the_queue_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion_file, "QUEUED", 2)
    lines = [{"row": "2+2", "completion": str(each)} for each in range(20)]
    assert [result.text for result in scored(*lines)] == [str(each) for each in range(20)]


def test_an_opponents_answers_are_read() -> None:
    right, without = scored(
        {"row": "2+2", "completion": "4", "predictions": ["4"]}, {"row": "2+2", "completion": "4"}, task="guess"
    )
    assert right.score is not None and right.score.value == 1.0
    assert "has an opponent" in without.problem
