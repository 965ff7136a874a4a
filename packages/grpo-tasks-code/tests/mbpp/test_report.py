import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import pytest

from grpo_sdk import EvaluationRecord, EvaluationReport, Score
from grpo_tasks_code.mbpp.report import report
from grpo_tasks_code.mbpp.rows import MBPPRow
from grpo_tasks_code.mbpp.task import MBPPConfig

Phase = Literal["initial", "interval", "final"]


def record(number: int, score: Score, completion: str = "```python\nx\n```") -> EvaluationRecord:
    row = MBPPRow(id=str(number), task_id=number, text="?", tests=("assert True",))
    return EvaluationRecord(row=row, prompt="?", completion=completion, score=score, tokens=7)


RIGHT, WRONG = (
    Score(share, {"passing": share, "passed_tests": share}, valid=True, solved=share == 1.0) for share in (1.0, 0.5)
)
UNSCORED = Score(None, why="the sandbox failed", fault="infrastructure")
RECORDS = [record(11, RIGHT), record(12, WRONG), record(13, RIGHT, "\ud800"), record(14, UNSCORED)]


def evaluation(
    folder: Path | None, phase: Phase = "interval", records: Sequence[EvaluationRecord] = RECORDS
) -> EvaluationReport:
    return EvaluationReport(
        task="code.mbpp",
        config=MBPPConfig(split="test", size=4),
        phase=phase,
        step=20,
        results={"solved_rate": 2 / 3 if records else None, "ci_low": 0.21, "ci_high": 0.94, "temperature": 0.2},
        records=list(records),
        seconds=3.5,
        folder=folder,
    )


@pytest.mark.parametrize(("phase", "prefix"), [("initial", "initial_"), ("interval", ""), ("final", "final_")])
def test_the_metrics_have_the_references_names(phase: Phase, prefix: str) -> None:
    assert report(evaluation(None, phase)) == {
        f"mbpp_eval/{prefix}pass_rate": pytest.approx(2 / 3),
        f"mbpp_eval/{prefix}problems_passed": 2,
        f"mbpp_eval/{prefix}total_problems": 3,  # the fourth could not be scored
        f"mbpp_eval/{prefix}eval_time": 3.5,
    }
    assert f"mbpp_eval/{prefix}pass_rate" not in report(evaluation(None, phase, []))  # nothing scored gives no rate


def test_the_files_have_the_references_names_and_fields(tmp_path: Path) -> None:
    report(evaluation(tmp_path))
    details, summary = sorted((tmp_path / "mbpp_eval").iterdir())
    assert summary.name.startswith("mbpp_summary_step_20_interval_2") and summary.suffix == ".json"
    assert details.name == summary.name.replace("summary", "details")
    found = json.loads(summary.read_text())
    assert set(found) >= {"timestamp", "total_problems", "pass_rate", "eval_time_seconds"}
    assert (found["step"], found["phase"], found["problems_passed"], found["not_scored"]) == (20, "interval", 2, 1)
    assert (found["pass_rate_ci_low"], found["pass_rate_ci_high"]) == (0.21, 0.94)
    assert found["config"]["timeout_s"] == 10.0 and found["config"]["num_questions"] == 4
    results = json.loads(details.read_text())["results"]
    assert [one["task_id"] for one in results] == ["11", "12", "13", "14"]
    assert [one["passed"] for one in results] == [True, False, True, False]
    assert [one["passed_tests"] for one in results] == [1.0, 0.5, 1.0, None]
    assert results[2]["completion"] == "\ud800"  # a lone surrogate survives


def test_the_environment_says_where_and_whether(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MBPP_RESULTS_DIR", str(tmp_path / "elsewhere"))
    report(evaluation(tmp_path / "run"))
    assert len(list((tmp_path / "elsewhere").iterdir())) == 2 and not (tmp_path / "run").exists()
    monkeypatch.setenv("MBPP_SAVE_RESULTS", "false")
    monkeypatch.setenv("MBPP_RESULTS_DIR", str(tmp_path / "nowhere"))
    assert report(evaluation(tmp_path / "run"))
    assert not (tmp_path / "nowhere").exists()


def test_a_folder_that_cannot_be_written_keeps_the_numbers(tmp_path: Path) -> None:
    (tmp_path / "mbpp_eval").write_text("a file where a folder is wanted")
    with pytest.warns(RuntimeWarning, match="not written"):
        assert report(evaluation(tmp_path))["mbpp_eval/total_problems"] == 3
