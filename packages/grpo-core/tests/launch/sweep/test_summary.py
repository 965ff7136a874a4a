import csv
import io
import math
from pathlib import Path

import orjson
import pytest

from grpo_core.launch.sweep.folder import RunStatus, SweepRun
from grpo_core.launch.sweep.metrics import goal_of
from grpo_core.launch.sweep.summary import as_data, configurations_csv, runs_csv, summarize
from grpo_sdk.errors import UserError


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
    # t(0.975, 2) = 4.3027, sd = 0.1, n = 3: e = 4.3027 * 0.1 / sqrt(3), scaled by 1 + e² / (0.5 * 0.5)
    assert (first.result.value, first.result.high) == pytest.approx((0.5, 0.5 + 0.2224696), abs=1e-6)
    assert (second.difference.value, second.difference.n) == (pytest.approx(0.05), 2)
    assert summary.best == 1, "of those with the most seeds"


def test_intervals_of_a_rate_hold_possible_values_alone(tmp_path: Path) -> None:
    rates = {(1, 0): 0.3, (1, 1): 0.6, (2, 0): 0.4, (2, 1): 0.2}
    statuses = [run(tmp_path, *key, rate) for key, rate in rates.items()]
    first, second = summarize(statuses, None, None, None).configurations
    assert first.result is not None and second.difference is not None
    assert 0 < first.result.low < first.result.high < 1
    assert -1 < second.difference.low < second.difference.high < 1
    seconds = summarize(statuses, "seconds", None, None).configurations[0].result
    assert seconds is not None and seconds.low < 0, "of numbers of any size nothing is known"


def test_one_run_has_the_interval_of_its_own_evaluation(tmp_path: Path) -> None:
    summary = summarize([run(tmp_path, 1, None, 0.4), run(tmp_path, 2, None, 0.5)], None, None, 2)
    data = as_data(summary)["configurations"]
    assert [(each["value"], each["value_ci_low"]) for each in data] == [(0.4, pytest.approx(0.3)), (0.5, 0.4)]
    # Each has ±0.1: sqrt(0.1² + 0.1²) around the difference.
    assert (data[0]["difference"], data[0]["difference_ci_low"]) == pytest.approx((-0.1, -0.1 - math.hypot(0.1, 0.1)))
    assert data[1]["difference"] is None, "the baseline"
    assert summary.best == 2


@pytest.mark.parametrize(("rates", "rivals"), [
    ({(1, 0): 0.5, (1, 1): 0.52, (1, 2): 0.51, (2, 0): 0.8, (2, 1): 0.83, (2, 2): 0.81}, []),
    ({(1, 0): 0.5, (1, 1): 0.9, (1, 2): 0.7, (2, 0): 0.8, (2, 1): 0.7, (2, 2): 0.9}, [1]),
    ({(1, None): 0.1, (2, None): 0.9, (3, None): 0.8}, [3]),  # one run each: ±0.1
    ({(1, 0): 0.5, (2, 1): 0.9}, [1]),  # no seed in common
    ({(1, 0): 0.5, (2, 0): None}, []),
])  # fmt: skip
def test_the_best_is_qualified_by_those_that_may_be_as_good(
    tmp_path: Path, rates: dict[tuple[int, int | None], float | None], rivals: list[int]
) -> None:
    summary = summarize([run(tmp_path, *key, rate) for key, rate in rates.items()], None, None, None)
    assert (list(summary.rivals), as_data(summary)["rivals"]) == (rivals, rivals)


def test_a_reward_has_the_bounds_that_its_task_declares(tmp_path: Path) -> None:
    statuses = [run(tmp_path, 1, seed, solved) for seed, solved in enumerate((0.9, 1.0))]
    for status in statuses:
        assert status.path is not None
        rate = {"solved_rate": 1.0, "mean_reward": 0.8 + 0.1 * (status.run.seed or 0), "reward_bounds": [None, 1.0]}
        (status.path / "summary.json").write_bytes(orjson.dumps({"tasks": {"a": {"final": rate}}}))
    result = summarize(statuses, "mean_reward", None, None).configurations[0].result
    assert result is not None and result.low < 0 < 0.85 < result.high < 1


def test_the_best_of_a_cost_is_the_lowest(tmp_path: Path) -> None:
    statuses = [run(tmp_path, 1, None, 0.4), run(tmp_path, 2, None, 0.5)]
    assert summarize(statuses, "seconds", None, None).best == 1
    assert summarize(statuses, "seconds", "max", None).best == 2
    with pytest.raises(UserError, match="Did you mean 'eval/a/solved_rate'"):
        summarize(statuses, "eval/a/solved_rat", "max", None)
    known = {"pass@8": "max", "eval/a/mean_reward": "max", "kl": "min", "seconds": "min"}
    assert {metric: goal_of(metric, None) for metric in known} == known
    with pytest.raises(UserError, match="Did you mean 'solved_rate'"):
        goal_of("solvd_rate", None)


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
