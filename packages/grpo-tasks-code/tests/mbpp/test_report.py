from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from grpo_core import EvaluationRecord, EvaluationReport, Score
from grpo_tasks_code.mbpp.report import report
from grpo_tasks_code.mbpp.rows import MBPPRow
from grpo_tasks_code.mbpp.task import MBPPConfig


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("MBPP_")]:
        monkeypatch.delenv(name)


def record(number: int, *, solved: bool, completion: str = "```python\nx\n```") -> EvaluationRecord:
    row = MBPPRow(id=str(number), task_id=number, text="?", tests=("assert True",))
    share = 1.0 if solved else 0.5
    score = Score(share, {"passing": share, "passed_tests": share}, valid=True, solved=solved)
    return EvaluationRecord(row=row, prompt="?", completion=completion, score=score, tokens=7)


def evaluation(folder: Path | None, phase: str = "interval", step: int = 20) -> EvaluationReport:
    failed = Score(None, why="the sandbox failed", fault="infrastructure")
    unscored = EvaluationRecord(
        row=MBPPRow(id="14", task_id=14, text="?", tests=("assert True",)), prompt="?", completion="", score=failed
    )
    return EvaluationReport(
        task="code.mbpp",
        config=MBPPConfig(split="test", size=4),
        phase=phase,  # type: ignore[arg-type] # a parametrised literal
        step=step,
        results={"solved_rate": 2 / 3, "ci_low": 0.21, "ci_high": 0.94, "temperature": 0.2, "top_p": 1.0},
        records=[
            record(11, solved=True),
            record(12, solved=False),
            record(13, solved=True, completion="\ud800"),
            unscored,
        ],
        seconds=3.5,
        folder=folder,
    )


@pytest.mark.parametrize(("phase", "prefix"), [("initial", "initial_"), ("interval", ""), ("final", "final_")])
def test_the_metrics_have_the_references_names(phase: str, prefix: str) -> None:
    assert report(evaluation(None, phase)) == {
        f"mbpp_eval/{prefix}pass_rate": pytest.approx(2 / 3),
        f"mbpp_eval/{prefix}problems_passed": 2,
        f"mbpp_eval/{prefix}total_problems": 3,  # the fourth could not be scored
        f"mbpp_eval/{prefix}eval_time": 3.5,
    }


def test_the_files_have_the_references_names_and_fields(tmp_path: Path) -> None:
    report(evaluation(tmp_path))
    details, summary = sorted((tmp_path / "mbpp_eval").iterdir())
    assert summary.name.startswith("mbpp_summary_step_20_interval_2") and summary.suffix == ".json"
    assert details.name == summary.name.replace("summary", "details")
    found = json.loads(summary.read_text())
    assert set(found) >= {
        "step",
        "phase",
        "timestamp",
        "total_problems",
        "problems_passed",
        "pass_rate",
        "eval_time_seconds",
        "config",
    }
    assert (found["step"], found["phase"], found["problems_passed"], found["not_scored"]) == (20, "interval", 2, 1)
    assert (found["pass_rate_ci_low"], found["pass_rate_ci_high"]) == (0.21, 0.94)
    assert found["config"]["timeout_s"] == 10.0 and found["config"]["num_questions"] == 4
    results = json.loads(details.read_text())["results"]
    assert [(one["task_id"], one["passed"], one["passed_tests"]) for one in results] == [
        ("11", True, 1.0),
        ("12", False, 0.5),
        ("13", True, 1.0),
        ("14", False, None),
    ]
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


def test_nothing_scored_gives_no_rate() -> None:
    found = EvaluationReport(
        task="code.mbpp",
        config=MBPPConfig(),
        phase="final",
        step=1,
        results={"solved_rate": None},
        records=[],
        seconds=1.0,
    )
    assert report(found) == {
        "mbpp_eval/final_problems_passed": 0,
        "mbpp_eval/final_total_problems": 0,
        "mbpp_eval/final_eval_time": 1.0,
    }
