"""N steps, a stop and M more equal N + M steps: weights, optimizer, every number but times, bit for bit."""

import itertools
import json
import os
import re
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import rank_runs
import torch
from launched_ranks import edited, run_in
from resumed_runs import VARIANTS, assert_same, config, evaluations, log, rollouts

from grpo_core import resume, train
from grpo_core.checkpoints import CheckpointStore
from grpo_core.config import EvalConfig
from grpo_core.evaluation.evaluator import HeldOutEvaluator
from grpo_core.tracking.events import read_events, read_sources
from grpo_core.tracking.runs import read_run
from grpo_core.training.collect import Collected
from grpo_core.training.optimizer import PolicyOptimizer
from grpo_core.training.report import Report
from grpo_core.training.run_folder import RunFolder
from grpo_core.training.state import RunState
from grpo_core.training.stored_run import allowed, check_resume
from grpo_core.training.trainer import Trainer
from grpo_core.training.update import Updater
from grpo_sdk.cli import main as entry
from grpo_sdk.errors import DamagedFileWarning, UnknownNameError, UserError

Straight = Callable[..., Path]


@pytest.fixture(scope="module", autouse=True)
def _opponents_write_as_much_as_the_learner() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("grpo_sdk.episodes.opponents.OPPONENT_TOKENS", 5)
        yield


@pytest.fixture(scope="module")
def begun(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped after its first of five steps, and knows another version of ours."""
    info = RunState.info

    def stored(state: RunState) -> dict[str, Any]:
        facts = info(state)
        return {**facts, "versions": {**facts["versions"], "grpo-core": "0.0.1"}}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunState, "info", stored)
        return train(config(folder, tmp_path_factory.mktemp("begun"), "plain", stop_after=1)).run_dir


def copied(run: Path, to: Path) -> Path:
    return Path(shutil.copytree(run, to / run.name, symlinks=True))


def steps(run: Path) -> list[int]:
    return [line["step"] for line in log(run)]


ELSEWHERE = {
    # A part of others:
    *("plain", "LoRA", "LoRA and value head", "a game", "a game, sampled ahead", "two iterations, two steps a batch"),
    *("LoRA with dropout", "curriculum", "sampled ahead"),  # stopped by a step that fails
}


@pytest.mark.parametrize("variant", [each for each in VARIANTS if each not in ELSEWHERE])
def test_a_stopped_run_ends_as_it_would_have(folder: Path, tmp_path: Path, straight: Straight, variant: str) -> None:
    stopped = train(config(folder, tmp_path, variant, stop_after=2))
    assert stopped.interrupted and steps(stopped.run_dir) == [1, 2]
    resumed = resume(stopped.run_dir)
    assert resumed.run_dir == stopped.run_dir and not resumed.interrupted
    assert_same(straight(variant), resumed.run_dir)


def test_a_stop_inside_a_batch_takes_the_rest_of_its_steps(folder: Path, tmp_path: Path, straight: Straight) -> None:
    variant = "two iterations, two steps a batch"
    with rank_runs.after_updates(7, lambda: signal.raise_signal(signal.SIGTERM)):
        stopped = train(config(folder, tmp_path, variant))
    assert stopped.interrupted and stopped.summary["updates"] % stopped.summary["steps"] == 0
    assert_same(straight(variant), resume(stopped.run_dir).run_dir)


def test_a_stop_in_an_evaluation_repeats_it_once(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluate_rows, moment = HeldOutEvaluator.evaluate_rows, "never"

    def stopping(evaluator: HeldOutEvaluator, label: str, rows: Any, what: str) -> Any:
        if moment in what:
            signal.raise_signal(signal.SIGTERM)
        return evaluate_rows(evaluator, label, rows, what)

    monkeypatch.setattr(HeldOutEvaluator, "evaluate_rows", stopping)
    made = config(folder, tmp_path, "curriculum", max_steps=3)
    made = made.model_copy(update={"eval": EvalConfig(size=4, interval_steps=2, surprisal=False)})
    whole = train(made).run_dir
    moment = "at step 2"
    stopped = train(made)
    assert stopped.interrupted and stopped.summary["steps"] == 2
    moment = "final"
    again = resume(stopped.run_dir)
    assert again.interrupted and again.summary["steps"] == 3
    moment = "never"
    resumed = resume(stopped.run_dir).run_dir
    assert_same(whole, resumed)
    assert evaluations(whole) == evaluations(resumed)


def test_additional_steps_are_so_many_more_and_end_as_they_would_have(straight: Straight, tmp_path: Path) -> None:
    run = straight(max_steps=3, save_every=1)
    whole, stopped = copied(run, tmp_path / "whole"), copied(run, tmp_path / "stopped")
    resume(whole, from_step="final", additional_steps=3)
    assert steps(whole) == [1, 2, 3, 4, 5, 6]
    assert [line["learning_rate"] for line in log(whole)[3:]] == [pytest.approx(1e-4)] * 3  # not a cosine of 6 steps
    assert resume(stopped, additional_steps=3, stop_after=2).interrupted
    assert not resume(stopped).interrupted
    assert_same(whole, stopped)


def test_additional_steps_are_trained_after_an_end_by_time_or_patience(folder: Path, tmp_path: Path) -> None:
    late = train(config(folder, tmp_path / "late", "plain", max_steps=None, max_minutes=1e-6)).run_dir
    with pytest.raises(UserError, match=r"step 0: nothing .* \(trainer.max_minutes=1e-06 have .*--additional-steps"):
        resume(late)
    assert resume(late, additional_steps=2).summary["steps"] == 2
    assert steps(late) == [1, 2]
    stuck = config(folder, tmp_path / "stuck", "plain", learning_rate=0.0)
    trainer = stuck.trainer.model_copy(update={"early_stop_patience": 1})
    often = EvalConfig(size=2, interval_steps=1, surprisal=False)
    run = train(stuck.model_copy(update={"trainer": trainer, "eval": often})).run_dir
    with pytest.raises(UserError, match=r"step 2 of 5: nothing is left to do \(no better held-out rate in 1"):
        resume(run)  # the rate after step 2 is no better than after step 1
    assert resume(run, additional_steps=2, stop_after=1).interrupted
    assert resume(run).summary["steps"] == 4, "an interrupted extension is one, too"


def test_without_planned_steps_a_schedule_has_time(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = itertools.count(step=2.0)
    clock = SimpleNamespace(monotonic=lambda: next(ticks), perf_counter=time.perf_counter)
    monkeypatch.setattr("grpo_core.training.stop.time", clock)
    timed = {"max_steps": None, "max_minutes": 1.0, "warmup_steps": 0, "warmup_ratio": 0.75, "stop_after": 3}
    run = train(config(folder, tmp_path, "plain", **timed)).run_dir
    ticks = itertools.count(start=10**6, step=2.0)  # another process, days later
    assert resume(run, stop_after=2).interrupted
    rates = [line["learning_rate"] / 1e-3 for line in log(run)]
    assert len(rates) == 5 and rates == sorted(set(rates)), "it warms up, and goes on from where it was"
    assert 0.05 < rates[0] < rates[-1] < 1.0, rates
    choices = {each["what"]: each["value"] for each in next(iter(read_events(run)))["choices"]}
    assert (choices["schedule"], choices["steps"]) == ("cosine, over time", "no fixed number")


def test_the_end_that_a_run_did_not_reach_is_made_by_a_resume(
    folder: Path, tmp_path: Path, straight: Straight, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(folder: RunFolder, summary: Any) -> None:
        raise MemoryError

    with monkeypatch.context() as patched, pytest.raises(MemoryError):
        patched.setattr(RunFolder, "write_summary", dies)
        train(config(folder, tmp_path, "plain"))
    run = run_in(tmp_path)
    final = run / "training_state" / "step_final" / "checksums.json"
    written = final.stat().st_mtime_ns
    assert resume(run).summary["steps"] == 5
    assert_same(straight(), run)
    assert evaluations(run) == evaluations(straight())
    assert final.stat().st_mtime_ns == written, "what is whole is not written again"


def test_an_earlier_step_can_be_gone_back_to(straight: Straight, tmp_path: Path) -> None:
    saved = copied(straight(save_every=2), tmp_path)
    assert_same(straight(), saved)
    left = sorted(path.name for path in (saved / "training_state").iterdir())
    assert left == ["step_2", "step_4", "step_final", "step_latest"]
    assert_same(straight(), resume(saved, from_step=2).run_dir)


def test_a_run_killed_after_it_went_back_goes_on_from_there(
    straight: Straight, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = copied(straight(max_steps=3, save_every=1), tmp_path)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Trainer, "run", killed)
        resume(run, from_step=1)
    assert steps(run) == [1]
    assert CheckpointStore(run).path("latest").name == "step_1"
    view = read_run(run)
    assert (view.state, view.steps, view.planned) == ("killed", 1, 3), "no longer finished"
    assert all(each.phase != "final" for each in view.results.values()), "the result of the abandoned steps"
    check_resume(run)


def test_a_damaged_line_ends_no_log_of_a_resumed_run(straight: Straight, tmp_path: Path) -> None:
    run = copied(straight(save_every=2), tmp_path)
    damaged = {"train_log.jsonl": 0, "train.log": 0, "rollouts.jsonl": 2}
    whole = {name: (run / "logs" / name).read_bytes().splitlines() for name in damaged}
    for name, at in damaged.items():
        lines = [*whole[name]]
        lines[at] = lines[at][2:]
        (run / "logs" / name).write_bytes(b"\n".join(lines) + b'\n{"step": 99')  # the last line is unfinished
    with pytest.warns(DamagedFileWarning) as warned:
        resume(run, from_step=2)
    told = {str(each.message).partition(": ")[0].rpartition("/")[2] for each in warned}
    assert told == {"train_log.jsonl:1", "train.log:1", "rollouts.jsonl:3"}
    for name, at in damaged.items():
        lines = (run / "logs" / name).read_bytes().splitlines()
        assert len(lines) == len(whole[name]) and lines[at] == whole[name][at][2:]
        assert all(b'{"step": 99' not in line for line in lines)


def test_a_run_is_resumed_from_another_directory(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    for place, answer in ((project, "1"), (elsewhere, "2")):
        place.mkdir()
        rows = [json.dumps({"question": f"{n} =", "answer": answer}) for n in range(8)]
        (place / "data.jsonl").write_text("\n".join(rows) + "\n")
    shutil.copytree(folder / "model", project / "model")
    monkeypatch.chdir(project)
    made = config(Path("."), Path("runs"), "plain", stop_after=1)
    run = train(made.model_copy(update={"task": "core.qa?path=data.jsonl", "model": "./model"})).run_dir
    monkeypatch.chdir(elsewhere)
    there = Path("..", "project", run)
    assert entry.main(["resume", str(there), "--quiet"]) == entry.main(["replay", str(there), "--json"]) == 0
    assert len(log(there)) == made.trainer.max_steps
    assert os.getcwd() == str(elsewhere) and sorted(os.listdir()) == ["data.jsonl"]
    project.rename(tmp_path / "moved")
    with pytest.raises(UserError, match=re.escape(f"began in {project}")):
        check_resume(Path("..", "moved", run), additional_steps=1)


# A step that fails: nothing half done is saved, and a resume ends as the run would have


def saved_steps(run: Path) -> set[str]:
    return {path.name for path in (run / "training_state").glob("step_[0-9]*")}


@pytest.mark.parametrize(
    "variant", ["LoRA with dropout", "curriculum", "ema, adaptive KL and entropy", "sampled ahead"]
)
def test_a_step_that_fails_before_its_update_is_undone(
    folder: Path, tmp_path: Path, straight: Straight, variant: str
) -> None:
    step = Updater._step

    def failing(updater: Updater, part: Any) -> dict[str, float]:
        if updater.optimizer.updates == 2 * updater._steps_per_batch:
            torch.rand(3)  # as dropout draws before memory runs out
            raise RuntimeError("no more power")
        return step(updater, part)

    with pytest.MonkeyPatch.context() as patched, pytest.raises(RuntimeError, match="no more power"):
        patched.setattr(Updater, "_step", failing)
        train(config(folder, tmp_path, variant))
    run = run_in(tmp_path)
    assert saved_steps(run) == {"step_2"}
    assert_same(straight(variant), resume(run).run_dir)


def test_a_step_that_has_changed_the_weights_is_not_saved(folder: Path, tmp_path: Path, straight: Straight) -> None:
    variant = "two iterations, two steps a batch"
    begin = PolicyOptimizer._begin

    def failing(optimizer: PolicyOptimizer, *rest: Any) -> None:
        begin(optimizer, *rest)
        if optimizer.begun == 11:  # in the third batch
            optimizer.parameters[0].data += 1
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(PolicyOptimizer, "_begin", failing)
        train(config(folder, tmp_path, variant, save_every=1))
    run = run_in(tmp_path)
    assert "step_2" in saved_steps(run) and "step_3" not in saved_steps(run)
    assert_same(straight(variant), resume(run).run_dir)


@pytest.mark.parametrize(("variant", "resumed"), [("plain", False), ("sampled ahead", True)])
def test_the_prompts_of_a_batch_that_is_refused_are_drawn_again(
    folder: Path, tmp_path: Path, straight: Straight, variant: str, *, resumed: bool
) -> None:
    own = Report.rollouts

    def refusing(report: Report, step: int, collected: Collected) -> None:
        if step == 3:
            raise RuntimeError("the judge is down")
        own(report, step, collected)

    if resumed:  # the checkpoint holds the batch that will be refused
        train(config(folder, tmp_path, variant, stop_after=2))
    with pytest.MonkeyPatch.context() as patched, pytest.raises(RuntimeError, match="the judge is down"):
        patched.setattr(Report, "rollouts", refusing)
        resume(run_in(tmp_path)) if resumed else train(config(folder, tmp_path, variant))
    run = resume(run_in(tmp_path)).run_dir
    drawn = [[(each["step"], each["row"]["id"]) for each in rollouts(path)] for path in (run, straight(variant))]
    assert drawn[0] == drawn[1]
    if variant == "plain":
        assert_same(straight(variant), run)


# What may differ


def test_a_changed_setting_is_refused_unless_it_is_allowed_by_name_and_recorded(begun: Path, tmp_path: Path) -> None:
    run = copied(begun, tmp_path)
    sources = read_sources(run)
    assert sources["task"] == sources["trainer.learning_rate"] == sources["trainer.stop_after"] == "python"
    edited(run, "learning_rate: 0.001", "learning_rate: 0.002")
    with pytest.raises(UserError, match=r"trainer.learning_rate is 0.002 now, .* 0.001.*--allow trainer.learning_rate"):
        resume(run)
    with pytest.raises(UserError, match=r"grpo-core is .* now and was 0\.0\.1.*--allow versions"):
        resume(run, allow=["trainer.learning_rate"])
    assert not resume(run, allow=["trainer.learning_rate", "versions"]).interrupted
    del sources["trainer.stop_after"]
    changed = {"trainer.learning_rate": f"{run.name}/config.yaml: changed after step 1"}
    assert read_sources(run) == sources | changed


def test_planned_steps_that_a_resume_would_not_take_are_refused(begun: Path, tmp_path: Path) -> None:
    run = copied(begun, tmp_path)
    edited(run, " max_steps: 5\n", " max_steps: 200\n")
    with pytest.raises(UserError, match=r"a resume does not change\. Put it back; --additional-steps N"):
        check_resume(run, from_step=1, allow=["trainer.max_steps", "versions"])


def test_planned_epochs_that_a_resume_would_not_take_are_refused(folder: Path, tmp_path: Path) -> None:
    run = train(config(folder, tmp_path, "plain", max_steps=None, num_train_epochs=1.0, stop_after=1)).run_dir
    edited(run, "num_train_epochs: 1.0", "num_train_epochs: 2.0")
    with pytest.raises(UserError, match=r"num_train_epochs is 2\.0 now, and .* planned with 1\.0"):
        check_resume(run, allow=["trainer.num_train_epochs"])


def test_a_changed_task_is_refused_with_what_changed_or_allowed(folder: Path, begun: Path, tmp_path: Path) -> None:
    run, tasks = copied(begun, tmp_path), folder / "tasks.py"
    source = tasks.read_text()
    code, data = r"changed since the checkpoint: its code \(", r"its data \(.*hash \w{16} now, \w{16} then\)"
    try:
        tasks.write_text(source.replace("32 <=", "33 <="))
        with pytest.raises(UserError, match=rf"{code}.*grpo-core is .* was 0\.0\.1.*--allow task") as said:
            resume(run)
        assert "its data" not in str(said.value) and "its options" not in str(said.value)
        tasks.write_text(source.replace("32 <=", "33 <=").replace("lambda row: row.id,", "lambda row: row.id + '!',"))
        with pytest.raises(UserError, match=rf"{code}.*{data}"):
            check_resume(run)  # without torch
        check_resume(run, allow=["data"])
        assert not resume(run, allow=["task", "versions"]).interrupted  # another word for data
    finally:
        tasks.write_text(source)
    edited(run, "tasks.py:letters", "tasks.py:letters?seed=7")
    with pytest.raises(UserError, match=r"task is .*seed=7 now.*--allow task"):
        check_resume(run, additional_steps=1)


def test_what_cannot_be_allowed_is_refused() -> None:
    for name, hint in (("dat", "'data'"), ("trainer.learning_rat", "learning_rate'")):
        with pytest.raises(UnknownNameError, match=f"{name}.*{hint}"):
            allowed([name])
    assert allowed(["task", "trainer.learning_rate"]) == {"data", "task", "trainer.learning_rate"}


def test_another_machine_is_refused_unless_it_is_allowed(begun: Path) -> None:
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(threads + 1)
        with pytest.raises(UserError, match=r"threads is .* now and was .*--allow hardware"):
            resume(begun, allow=["versions"])
    finally:
        torch.set_num_threads(threads)


def test_damaged_weights_get_one_line(straight: Straight, tmp_path: Path) -> None:
    run = copied(straight(save_every=2), tmp_path)
    weights = run / "training_state" / "step_4" / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"model.safetensors.* --from-step"):
        resume(run, from_step=4)
