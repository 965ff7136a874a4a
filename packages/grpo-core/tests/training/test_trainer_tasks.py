"""What a task says about its scores, its batches and its evaluation, from its own file to the logs of a run."""

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import group_tasks
import pytest
from heard import Heard

from grpo_core import evaluate, resume
from grpo_core.cli.rollout_selection import Selection, part_times
from grpo_core.training.result import RunResult
from grpo_sdk import UserError
from grpo_sdk.callbacks import ResolvedDefault

CODE = f"{Path(__file__).parent / 'programs' / 'wishing.py'}:code"
VARIED = f"{group_tasks.__file__}:varied"
SANDBOX = {"sandbox": "L3: seccomp"}
SMALL = {"max_steps": 3, "prompts_per_step": 2, "num_generations": 2}

Trained = Callable[..., RunResult]


@pytest.fixture(scope="module", autouse=True)
def level() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LEVEL", "L3: seccomp")
        yield patch


def evaluations(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "logs" / "evaluations.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def wished(trained: Trained, level: object) -> tuple[RunResult, Heard]:
    heard = Heard()
    # Of eval.*, only surprisal is said: the rest is the task's for `code`, and ours for `plain`.
    return trained("wishing.py:code,wishing.py:plain", [heard], eval={"surprisal": False}, **SMALL), heard


def test_conditions_are_shown_once_and_stored_everywhere(wished: tuple[RunResult, Heard]) -> None:
    result, heard = wished
    sandbox = [choice for choice in heard.chosen if choice.what == "sandbox"]
    assert sandbox == [ResolvedDefault("sandbox", "L3: seccomp", "the scores of wishing.code depend on it")]
    tasks = result.summary["tasks"]
    assert (tasks["wishing.code"]["conditions"], tasks["wishing.plain"]["conditions"]) == (SANDBOX, {})
    assert tasks["wishing.code"]["final"]["conditions"] == SANDBOX
    info = json.loads((result.run_dir / "training_state" / "step_final" / "training_info.json").read_text())
    assert info["conditions"] == {"wishing.code": SANDBOX}
    assert {each.task.rpartition(":")[2]: each.conditions for each in result.rollouts()} == {
        "code": SANDBOX, "plain": None,
    }  # fmt: skip
    (meta,) = result.run_dir.parent.parent.glob(f"eval_runs/{result.run_dir.name}_wishing.code/base/**/run_meta.json")
    assert json.loads(meta.read_text())["conditions"] == SANDBOX


def test_a_reward_reads_the_split_of_its_row(trained: Trained) -> None:
    result = trained("wishing.py:by_split", max_steps=1, eval={"size": 4})
    assert result.metrics[0]["reward"] == 0.0
    assert [line["eval/wishing.by_split/mean_reward"] for line in evaluations(result.run_dir)] == [1.0] * 2


def test_a_batchs_numbers_are_logged_under_their_names(wished: tuple[RunResult, Heard]) -> None:
    result, heard = wished
    for line in result.metrics:
        assert line["execution/total"] == 2.0, "one prompt of two for each task"
        assert line["execution/characters"] == line["task/wishing.code/part/characters"] * 2
        assert "execution/broken" not in line
    (broken,) = [said for said in heard.warnings if "metrics()" in said]  # once, in training and in evaluations
    assert broken.startswith("task 'wishing.plain': metrics() raised ZeroDivisionError (wishing.py:")


def test_a_task_is_evaluated_and_reports_as_it_wishes(wished: tuple[RunResult, Heard]) -> None:
    result, heard = wished
    assert heard.choices["evaluation"].value == "wishing.code: size=3, n=2, temperature=1.0, interval_steps=2"
    found = evaluations(result.run_dir)
    assert [(line["step"], line["phase"]) for line in found] == [(0, "initial"), (2, "interval"), (3, "final")]
    for line in found:
        assert (line["eval/wishing.code/n"], line["eval/wishing.code/execution/total"]) == (3.0, 6.0)
        assert "eval/wishing.code/pass@2" in line
        low, high = (line[f"eval/wishing.code/execution/characters_ci_{end}"] for end in ("low", "high"))
        assert low <= line["eval/wishing.code/execution/characters"] <= high
        assert line[f"mbpp_eval/{line['phase']}_rate"] == line["eval/wishing.code/solved_rate"]
    assert ["eval/wishing.plain/n" in line for line in found] == [True, False, True]
    assert found[0]["eval/wishing.plain/n"] == 8.0
    reports = sorted(file.name for file in result.run_dir.glob("report_*.json"))
    assert reports == ["report_final_3.json", "report_initial_0.json", "report_interval_2.json"]
    records = json.loads((result.run_dir / "report_initial_0.json").read_text())
    assert [(row, prompt) for row, prompt, *_ in records] == [(f"test{i // 2}", f"test{i // 2}") for i in range(6)]
    tasks = result.summary["tasks"]
    assert set(tasks["wishing.code"]["initial"]["report"]) == {"mbpp_eval/initial_rate", "mbpp_eval/seconds"}
    assert "report" not in tasks["wishing.plain"]["initial"]


def test_names_that_two_log_are_refused(trained: Trained) -> None:
    with pytest.raises(UserError, match=r"wishing\.clashing logs 'execution/total', which is wishing\.code's already"):
        trained("wishing.py:code,wishing.py:clashing")


def test_a_resume_keeps_the_wishes_and_refuses_other_conditions(trained: Trained, level: pytest.MonkeyPatch) -> None:
    stopped = trained("wishing.py:code", eval={"size": 2, "surprisal": False}, stop_after=1, **SMALL).run_dir
    level.setenv("LEVEL", "L2: no namespaces")
    with pytest.raises(
        UserError, match=r"wishing\.code is \{'sandbox': 'L2.* was \{'sandbox': 'L3.*--allow conditions"
    ):
        resume(stopped, progress=False)
    level.setenv("LEVEL", "L3: seccomp")
    resume(stopped, progress=False)
    assert [line["phase"] for line in evaluations(stopped)] == ["initial", "interval", "final"]


# Parts of rewards


def test_a_run_is_trained_on_group_rewards(trained: Trained) -> None:
    sizes = {"model": "tiny", "max_steps": 1, "prompts_per_step": 2, "max_completion_length": 8}
    result = trained(VARIED, seed=1, eval={"at_end": False}, **sizes)
    rollouts = result.rollouts()
    assert len(rollouts) == 8
    for rollout in rollouts:
        parts = rollout.score.parts
        relative = 0.2 * parts["diversity"] + 0.3 * parts["pairwise_ranking"]
        assert math.isclose(rollout.reward, 0.5 * parts["has_a"] + relative)
    assert any(rollout.score.parts["diversity"] > 0 for rollout in rollouts)
    times = {each["part"]: each["n"] for each in part_times(result.run_dir, Selection(step="all"))}
    assert times["diversity"] == times["pairwise_ranking"] == 8, "grpo rollouts --slow lists them"
    evaluated = result.summary["tasks"]["group_tasks.varied"]["initial"]
    assert evaluated["mean_reward"] <= 0.5, "held-out completions are scored by themselves"


@pytest.mark.parametrize(("settings", "why"), [
    ({"num_generations": 1, "baseline": "ema"}, r"diversity\(\) compares the completions of a prompt, and trainer"),
    ({"baseline": "remax"}, "would be missing in the baseline remax"),
])  # fmt: skip
def test_group_rewards_need_something_to_compare(trained: Trained, settings: dict[str, int | str], why: str) -> None:
    with pytest.raises(UserError, match=why):
        trained(VARIED, **settings)


# Beside a training


def test_an_evaluation_alone_follows_the_wishes_and_reports(folder: Path, tmp_path: Path) -> None:
    heard, model = Heard(), str(folder / "model")
    found = evaluate(CODE, model, size=2, surprisal=False, output_dir=tmp_path / "out", callbacks=(heard,))
    (result,) = found.values()
    assert (result["n"], result["completions_per_row"], result["conditions"]) == (2, 2, SANDBOX)
    assert result["metrics"]["execution/total"] == 4.0
    assert result["report"]["mbpp_eval/final_rate"] == result["solved_rate"]
    assert [choice.what for choice in heard.chosen] == ["sandbox", "evaluation"]
    assert (tmp_path / "out" / "model_wishing.code" / "report_final_0.json").is_file()
