import csv
import io
import math
from pathlib import Path

import orjson
import pytest

from grpo_core.errors import UserError
from grpo_core.evaluation.intervals import student_mean
from grpo_core.launch.sweep.folder import RunStatus, SweepRun
from grpo_core.launch.sweep.metrics import goal_of
from grpo_core.launch.sweep.summary import as_data, configurations_csv, runs_csv, summarize


def run(folder: Path, number: int, seed: int | None, solved: float | None, line: str = "") -> RunStatus:
    planned = SweepRun(name=f"{number}_{seed}", configuration=number, settings={"lora.r": str(number)}, seed=seed)
    if solved is None:
        return RunStatus(planned, "failed", None, 1, line)
    path = folder / planned.name
    (path / "logs").mkdir(parents=True)
    final = {"solved_rate": solved, "ci_low": solved - 0.1, "ci_high": solved + 0.1}
    (path / "summary.json").write_bytes(orjson.dumps({"tasks": {"a": {"final": final}}, "seconds": solved * 10}))
    return RunStatus(planned, "finished", path, 0)


def test_configurations_are_compared_over_the_seeds_that_both_have(tmp_path: Path) -> None:
    rates = {(1, 0): 0.4, (1, 1): 0.5, (1, 2): 0.6, (2, 0): 0.5, (2, 1): 0.5, (2, 2): None}
    summary = summarize([run(tmp_path, *key, rate) for key, rate in rates.items()], None, None, None)
    first, second = summary.configurations
    assert (summary.metric, summary.goal, summary.baseline) == ("eval/a/solved_rate", "max", 1)
    assert first.result is not None and second.difference is not None
    # t(0.975, 2) = 4.3027, sd = 0.1, n = 3: half the width is 4.3027 * 0.1 / sqrt(3)
    assert (first.result.value, first.result.high) == pytest.approx((0.5, 0.5 + 0.248414), abs=1e-6)
    assert math.isnan(student_mean([0.5, 0.5]).low), "equal seeds say nothing of the spread"
    # differences 0.1 and 0: mean 0.05, sd 0.0707107, t(0.975, 1) = 12.7062
    assert (second.difference.value, second.difference.n) == (pytest.approx(0.05), 2)
    assert second.difference.high == pytest.approx(0.05 + 12.7062 * 0.0707107 / math.sqrt(2))
    assert summary.best == 1, "of those with the most seeds"


def test_intervals_of_a_rate_hold_possible_values_alone(tmp_path: Path) -> None:
    rates = {(1, 0): 0.3, (1, 1): 0.6, (2, 0): 0.4, (2, 1): 0.2}
    statuses = [run(tmp_path, *key, rate) for key, rate in rates.items()]
    first, second = summarize(statuses, None, None, None).configurations
    assert first.result is not None and second.difference is not None
    assert (first.result.low, first.result.high) == (0.0, 1.0)
    assert (second.difference.low, second.difference.high) == (-1.0, 1.0)
    seconds = summarize(statuses, "seconds", None, None).configurations[0].result
    assert seconds is not None and seconds.low < 0, "of numbers of any size nothing is known"


def test_one_run_has_the_interval_of_its_own_evaluation(tmp_path: Path) -> None:
    summary = summarize([run(tmp_path, 1, None, 0.4), run(tmp_path, 2, None, 0.5)], None, None, 2)
    data = as_data(summary)["configurations"]
    assert [(each["value"], each["value_ci_low"]) for each in data] == [(0.4, pytest.approx(0.3)), (0.5, 0.4)]
    assert (data[0]["difference"], data[0]["difference_ci_low"]) == (pytest.approx(-0.1), None)
    assert data[1]["difference"] is None, "the baseline"
    assert summary.best == 2


def test_the_best_of_a_cost_is_the_lowest(tmp_path: Path) -> None:
    statuses = [run(tmp_path, 1, None, 0.4), run(tmp_path, 2, None, 0.5)]
    assert summarize(statuses, "seconds", None, None).best == 1
    assert summarize(statuses, "seconds", "max", None).best == 2
    with pytest.raises(UserError, match="--baseline 3: configurations are numbered from 1 to 2"):
        summarize(statuses, None, None, 3)
    with pytest.raises(UserError, match="Did you mean 'eval/a/solved_rate'"):
        summarize(statuses, "eval/a/solved_rat", "max", None)
    known = {"pass@8": "max", "eval/a/mean_reward": "max", "kl": "min", "seconds": "min"}
    assert {metric: goal_of(metric, None) for metric in known} == known
    for metric, message in (
        ("my_metric", "Give --goal max or --goal min"),
        ("solvd_rate", "Did you mean 'solved_rate'"),
    ):
        with pytest.raises(UserError, match=message):
            goal_of(metric, None)


def test_tables_have_a_line_for_a_failed_run_and_no_formula(tmp_path: Path) -> None:
    summary = summarize([run(tmp_path, 1, 0, None, "=cmd|' /C calc'!A0"), run(tmp_path, 2, 0, 0.5)], None, None, None)
    runs = list(csv.DictReader(io.StringIO(runs_csv(summary))))
    ends = [(each["state"], each["exit_code"], each["value"]) for each in runs]
    assert ends == [("failed", "1", ""), ("finished", "0", "0.5")]
    assert runs[0]["last_line"].startswith("'=cmd")
    lines = list(csv.DictReader(io.StringIO(configurations_csv(summary))))
    shown = [(each["lora.r"], each["failed"], each["best"]) for each in lines]
    assert shown == [("1", "1", "False"), ("2", "0", "True")]
    nothing = summarize([run(tmp_path, 3, None, None)], None, None, None)
    assert (nothing.metric, nothing.best) == ("solved_rate", None), "nothing has finished"
