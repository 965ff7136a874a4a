"""A file of completions is scored in order, line by line; a wrong line is named and stops nothing."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import scoring_tasks

from grpo_sdk import Scorer
from grpo_sdk.scoring import completion_file
from grpo_sdk.scoring.completion_file import FileSummary, LineScore, score_lines

TASKS = Path(scoring_tasks.__file__)
WHOLE_ROW = {"id": "of-elsewhere", "gold": "5", "a": 2, "b": 3}
RIGHT = {"row": "2+2", "completion": "4"}


@pytest.fixture(scope="module")
def scorer() -> Iterator[Scorer]:
    with Scorer(f"{TASKS}:hurried", workers=1) as scorer:
        yield scorer


def scored(scorer: Scorer, *lines: Any, **options: Any) -> list[LineScore]:
    data = b"\n".join(line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines)
    return list(score_lines(scorer, io.BytesIO(data), **options))


def test_rows_are_given_by_id_or_whole_and_scores_come_in_order(scorer: Scorer) -> None:
    whole = {"row": WHOLE_ROW, "completion": "5", "other": [1]}
    results = scored(scorer, RIGHT, b"", whole, {"row": "3+3", "text": "7"})
    assert [(result.line, result.row) for result in results] == [(1, "2+2"), (3, "of-elsewhere"), (4, "3+3")]
    assert [result.score and result.score.solved for result in results] == [True, True, False]


@pytest.mark.parametrize(("line", "problem"), [
    (b"{", "not JSON"),
    (b"[]", "a list where an object"),
    ({"row": "2+2"}, "no completion"),
    ({"completion": "4"}, "no row"),
    ({"row": "2+22", "completion": "4"}, "no row '2+22' among its 5. Did you mean '2+2'?"),
    ({"row": {"id": "x", "a": "?"}, "completion": "4"}, "does not fit Sum"),
    (b'{"completion": "4", "row": {"id": "x", "a": ' + b"[" * 300 + b"]" * 300 + b"}}", "recursion limit exceeded"),
    (b"x" * 1000, "longer than 900 bytes"),  # in bounded memory
])  # fmt: skip
def test_a_wrong_line_is_named_and_stops_nothing(scorer, line, problem, monkeypatch):
    monkeypatch.setattr(completion_file, "MAX_LINE_BYTES", 900)
    wrong, right = scored(scorer, line, RIGHT)
    assert wrong.score is None
    assert (wrong.line, problem in wrong.problem) == (1, True), wrong.problem
    assert right.line == 2 and right.score is not None and right.score.solved


def test_a_completion_that_hangs_abstains_and_is_counted(scorer: Scorer) -> None:
    summary = FileSummary()
    results = list(summary.counted(scored(scorer, {"row": "2+2", "completion": "spin"}, RIGHT, b"{")))
    assert results[0].score is not None and results[0].score.fault == "timeout"
    assert (summary.lines, summary.abstained, summary.solved, summary.wrong) == (2, 1, 1, 1)
    assert (summary.mean, summary.abstained_share) == (2.0, 0.5)


def test_an_opponents_answers_are_read() -> None:
    with Scorer(f"{TASKS}:guess", workers=1) as scorer:
        right, without = scored(scorer, {**RIGHT, "predictions": ["4"]}, RIGHT)
    assert right.score is not None and right.score.value == 1.0
    assert "has an opponent" in without.problem
