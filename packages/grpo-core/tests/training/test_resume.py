"""N steps, a stop and M more equal N + M steps: weights, optimizer, every number but times, bit for bit."""

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from resumed_runs import GAMES, VARIANTS, assert_same, config, evaluations, log, model_and_tasks

from grpo_core import train
from grpo_core.cli import main as entry
from grpo_core.config import EvalConfig, RunConfig
from grpo_core.errors import DamagedFileWarning, UnknownNameError, UserError
from grpo_core.evaluation.held_out import HeldOutEvaluator
from grpo_core.tracking import presence
from grpo_core.tracking.base import remember_id
from grpo_core.tracking.events import read_sources
from grpo_core.tracking.presence import working_in
from grpo_core.training.resume import resume
from grpo_core.training.run_folder import RunFolder
from grpo_core.training.state import RunState
from grpo_core.training.stored_run import allowed, check_resume
from grpo_core.training.trainer import RunResult
from grpo_core.training.update import Updater


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("resume")
    return model_and_tasks(path)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_run_that_was_stopped_ends_as_it_would_have(
    folder: Path, tmp_path: Path, variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grpo_core.rollouts.episodes.OPPONENT_TOKENS", 5)  # as the learner's
    straight = train(config(folder, tmp_path / "straight", variant))
    stopped = train(config(folder, tmp_path / "stopped", variant, stop_after=2))
    assert stopped.interrupted
    assert [line["step"] for line in log(stopped.run_dir)] == [1, 2]
    resumed = resume(stopped.run_dir)
    assert resumed.run_dir == stopped.run_dir
    assert not resumed.interrupted
    assert_same(straight.run_dir, resumed.run_dir)


class StopAt:
    """Asks an updater's run to stop when it has taken some optimizer steps, as a signal might."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, updates: int) -> None:
        step = Updater._step

        def stepping(updater: Updater, part: Any) -> dict[str, float]:
            metrics = step(updater, part)
            if updater.optimizer.updates == updates:
                signal.raise_signal(signal.SIGTERM)
            return metrics

        monkeypatch.setattr(Updater, "_step", stepping)


@pytest.mark.parametrize("variant", ["two iterations, two steps a batch", "ema, adaptive KL and entropy"])
def test_a_stop_inside_a_batch_takes_the_rest_of_its_optimizer_steps(
    folder: Path, tmp_path: Path, variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight = train(config(folder, tmp_path / "straight", variant))
    with monkeypatch.context() as patched:
        StopAt(patched, 7 if variant.startswith("two") else 5)  # inside the second, or the third, step's batch
        stopped = train(config(folder, tmp_path / "stopped", variant))
    assert stopped.interrupted and stopped.summary["updates"] == 2 * stopped.summary["steps"] * (
        1 + variant.startswith("two")
    )
    assert_same(straight.run_dir, resume(stopped.run_dir).run_dir)


def test_a_stop_inside_an_interval_evaluation_repeats_it_once(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def configured(out: Path) -> RunConfig:
        made = config(folder, out, "curriculum")
        return made.model_copy(update={"eval": EvalConfig(size=4, interval_steps=2, surprisal=False)})

    straight = train(configured(tmp_path / "straight"))
    evaluate_rows = HeldOutEvaluator.evaluate_rows

    def stopping(evaluator: HeldOutEvaluator, label: str, rows: Any, what: str) -> Any:
        if what.endswith("at step 2"):
            signal.raise_signal(signal.SIGTERM)
        return evaluate_rows(evaluator, label, rows, what)

    with monkeypatch.context() as patched:
        patched.setattr(HeldOutEvaluator, "evaluate_rows", stopping)
        stopped = train(configured(tmp_path / "stopped"))
    assert stopped.interrupted and stopped.summary["steps"] == 2
    resumed = resume(stopped.run_dir).run_dir
    assert_same(straight.run_dir, resumed)
    assert evaluations(straight.run_dir) == evaluations(resumed)


def test_additional_steps_are_exactly_so_many_more(folder: Path, tmp_path: Path) -> None:
    run = train(config(folder, tmp_path, "plain")).run_dir
    with pytest.raises(UserError, match=r"step 5 of 5: nothing is left to do.*--additional-steps"):
        resume(run)
    resume(run, from_step="final", additional_steps=2)
    assert [line["step"] for line in log(run)] == [1, 2, 3, 4, 5, 6, 7]
    assert log(run)[-1]["learning_rate"] == pytest.approx(0.1 * 1e-3)  # cosine has ended at a tenth


def copied(run: Path, to: Path) -> Path:
    return Path(shutil.copytree(run, to / run.name, symlinks=True))


def test_additional_steps_that_are_interrupted_end_as_they_would_have(folder: Path, tmp_path: Path) -> None:
    run = train(config(folder, tmp_path, "plain", max_steps=3)).run_dir
    straight, stopped = copied(run, tmp_path / "straight"), copied(run, tmp_path / "stopped")
    resume(straight, additional_steps=3)
    assert resume(stopped, additional_steps=3, stop_after=2).interrupted
    assert not resume(stopped).interrupted
    assert_same(straight, stopped)
    assert [line["learning_rate"] for line in log(stopped)[3:]] == [pytest.approx(1e-4)] * 3  # not a cosine of 6 steps
    with pytest.raises(UserError, match=r"step 6 of 6: nothing is left to do"):
        resume(stopped)


def test_additional_steps_are_trained_after_an_end_by_time_or_patience(folder: Path, tmp_path: Path) -> None:
    late = train(config(folder, tmp_path / "late", "plain", max_steps=None, max_minutes=1e-6)).run_dir
    with pytest.raises(UserError, match=r"step 0: nothing is left to do \(trainer.max_minutes=1e-06 have passed\)"):
        resume(late)
    assert resume(late, additional_steps=2).summary["steps"] == 2
    assert [line["step"] for line in log(late)] == [1, 2]
    stuck = config(folder, tmp_path / "stuck", "plain", learning_rate=0.0)
    trainer = stuck.trainer.model_copy(update={"early_stop_patience": 1})
    often = EvalConfig(size=4, interval_steps=1, surprisal=False)
    stuck = stuck.model_copy(update={"trainer": trainer, "eval": often})
    run = train(stuck).run_dir  # the rate after step 2 is no better than after step 1
    with pytest.raises(
        UserError, match=r"step 2 of 5: nothing is left to do \(no better held-out rate in 1 evaluation"
    ):
        resume(run)
    assert resume(run, additional_steps=2, stop_after=1).interrupted
    assert resume(run).summary["steps"] == 4, "an interrupted extension is one, too"


def test_a_schedule_without_planned_steps_follows_the_clock(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = itertools.count(step=2.0)
    clock = SimpleNamespace(monotonic=lambda: next(ticks), perf_counter=time.perf_counter)
    monkeypatch.setattr("grpo_core.training.clock.time", clock)
    limited = config(
        folder, tmp_path, "plain", max_steps=None, max_minutes=1.0, warmup_steps=0, warmup_ratio=0.75, stop_after=3
    )
    run = train(limited).run_dir
    ticks = itertools.count(start=10**6, step=2.0)  # another process, days later
    assert resume(run, stop_after=2).interrupted
    rates = [line["learning_rate"] / 1e-3 for line in log(run)]
    assert len(rates) == 5 and rates == sorted(set(rates)), "it warms up, and goes on from where it was"
    assert 0.05 < rates[0] < rates[-1] < 1.0, rates
    choices = json.loads((run / "logs" / "events.jsonl").read_text().splitlines()[0])["choices"]
    assert [each["value"] for each in choices if each["what"] == "schedule"] == ["cosine, over time"]
    assert [each["value"] for each in choices if each["what"] == "steps"] == ["no fixed number"]


def test_the_end_that_a_run_did_not_reach_is_made_by_a_resume(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight = train(config(folder, tmp_path / "straight", "plain"))

    def dies(folder: RunFolder, summary: Any) -> None:
        raise MemoryError

    with monkeypatch.context() as patched, pytest.raises(MemoryError):
        patched.setattr(RunFolder, "write_summary", dies)
        train(config(folder, tmp_path / "killed", "plain"))
    (run,) = (tmp_path / "killed").iterdir()
    final = run / "training_state" / "step_final" / "checksums.json"
    written = final.stat().st_mtime_ns
    resumed = resume(run)
    assert resumed.summary["steps"] == 5 and not resumed.interrupted
    assert_same(straight.run_dir, run)
    assert evaluations(run) == evaluations(straight.run_dir)
    assert final.stat().st_mtime_ns == written, "what is whole is not written again"
    with pytest.raises(UserError, match="nothing is left to do"):
        resume(run)


def test_a_stop_inside_the_final_evaluation_is_made_up_for(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight = train(config(folder, tmp_path / "straight", "plain"))
    evaluate_rows = HeldOutEvaluator.evaluate_rows

    def stopping(evaluator: HeldOutEvaluator, label: str, rows: Any, what: str) -> Any:
        if what.startswith("final"):
            signal.raise_signal(signal.SIGTERM)
        return evaluate_rows(evaluator, label, rows, what)

    with monkeypatch.context() as patched:
        patched.setattr(HeldOutEvaluator, "evaluate_rows", stopping)
        stopped = train(config(folder, tmp_path / "stopped", "plain"))
    assert stopped.interrupted and stopped.summary["steps"] == 5
    assert_same(straight.run_dir, resume(stopped.run_dir).run_dir)


def test_a_run_that_another_process_works_in_is_refused(folder: Path, tmp_path: Path) -> None:
    run = train(config(folder, tmp_path, "plain", stop_after=1)).run_dir
    with working_in(run), pytest.raises(UserError, match=rf"in use: process {os.getpid()} on .* since 20"):
        resume(run)
    assert not resume(run).interrupted


def test_an_earlier_step_can_be_gone_back_to(folder: Path, tmp_path: Path) -> None:
    straight = train(config(folder, tmp_path / "a", "plain")).run_dir
    saved = train(config(folder, tmp_path / "b", "plain", save_every=2)).run_dir
    assert_same(straight, saved)
    assert sorted(path.name for path in (saved / "training_state").iterdir()) == [
        "step_2", "step_4", "step_final", "step_latest",
    ]  # fmt: skip
    assert_same(straight, resume(saved, from_step=2).run_dir)


def test_a_damaged_line_ends_no_log_of_a_resumed_run(folder: Path, tmp_path: Path) -> None:
    run = train(config(folder, tmp_path / "straight", "plain", save_every=2)).run_dir
    whole = {path.name: path.read_bytes().splitlines() for path in (run / "logs").glob("*log*")}
    whole["rollouts.jsonl"] = (run / "logs" / "rollouts.jsonl").read_bytes().splitlines()
    damaged = {"train_log.jsonl": 0, "train.log": 0, "rollouts.jsonl": 2}
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
        assert [json.loads(line)["step"] for line in lines if name != "train.log" and line != lines[at]] == [
            json.loads(line)["step"] for index, line in enumerate(whole[name]) if name != "train.log" and index != at
        ]


def test_a_run_is_resumed_from_another_directory(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    for place, answer in ((project, "1"), (elsewhere, "2")):
        place.mkdir()
        rows = [json.dumps({"question": f"{n} =", "answer": answer}) for n in range(8)]
        (place / "data.jsonl").write_text("\n".join(rows) + "\n")
    shutil.copytree(folder / "model", project / "model")
    monkeypatch.chdir(project)
    made = config(Path("."), Path("runs"), "plain", stop_after=1)
    made = made.model_copy(update={"task": "core.qa?path=data.jsonl", "model": "./model", "eval": EvalConfig(size=2)})
    run = train(made).run_dir
    monkeypatch.chdir(elsewhere)
    there = Path("..", "project", run)
    assert entry.main(["resume", str(there), "--quiet"]) == entry.main(["replay", str(there), "--json"]) == 0
    assert len(log(there)) == made.trainer.max_steps
    assert resume(there, additional_steps=1).run_dir == project.resolve() / run
    assert os.getcwd() == str(elsewhere) and sorted(os.listdir()) == ["data.jsonl"]
    project.rename(tmp_path / "moved")
    with pytest.raises(UserError, match=re.escape(f"began in {project}")):
        check_resume(Path("..", "moved", run), additional_steps=1)


def test_files_of_a_run_are_replaced_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunFolder(tmp_path)

    def write(number: int) -> Iterator[Callable[[], object]]:
        yield lambda: run.write_config(f"seed: {number}\n")
        yield lambda: run.write_summary({"steps": number})
        yield lambda: presence.announce(run.path)
        yield lambda: remember_id(run.path, "wandb", f"id{number}")

    for each in write(1):
        each()
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    assert len([path for path in before if before[path]]) == 4

    def killed(*names: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", killed)
    for each in write(2):
        with pytest.raises(KeyboardInterrupt):
            each()
    run.close()
    assert {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()} == before


def test_the_kl_anchor_is_the_same_after_a_resume(folder: Path, tmp_path: Path) -> None:
    start = train(config(folder, tmp_path / "start", "LoRA", beta=0.0, kl_placement="loss", kl="k3")).run_dir
    adapter = start / "training_state" / "step_final" / "model"
    from_adapter = {"trainer": {"beta": 0.1}, "adapter": str(adapter)}

    def configured(out: Path, **trainer: Any) -> RunConfig:
        made = config(folder, out, "plain", beta=0.1, **trainer)
        return made.model_copy(update={"adapter": from_adapter["adapter"]})

    straight = train(configured(tmp_path / "straight"))
    assert log(straight.run_dir)[0]["kl"] == pytest.approx(0.0, abs=1e-6)  # from an adapter that is not zero
    stopped = train(configured(tmp_path / "stopped", stop_after=3))
    assert_same(straight.run_dir, resume(stopped.run_dir).run_dir)


def edited(run: Path, change: Callable[[str], str]) -> None:
    path = run / "config.yaml"
    path.write_text(change(path.read_text()))


def test_a_changed_setting_is_refused_unless_it_is_allowed_by_name(folder: Path, tmp_path: Path) -> None:
    run = train(config(folder, tmp_path, "plain", stop_after=1)).run_dir
    edited(run, lambda text: text.replace("learning_rate: 0.001", "learning_rate: 0.002"))
    with pytest.raises(UserError, match=r"trainer.learning_rate is 0.002 now, .* 0.001.*--allow trainer.learning_rate"):
        resume(run)
    assert not resume(run, allow=["trainer.learning_rate"]).interrupted


def test_a_resume_records_where_the_settings_come_from(folder: Path, tmp_path: Path) -> None:
    run = train(config(folder, tmp_path, "plain", stop_after=1)).run_dir
    began = read_sources(run)
    assert began["task"] == began["trainer.learning_rate"] == began["trainer.stop_after"] == "python"
    edited(run, lambda text: text.replace("learning_rate: 0.001", "learning_rate: 0.002"))
    resume(run, allow=["trainer.learning_rate"])
    changed = {"trainer.learning_rate": f"{run.name}/config.yaml: changed after step 1"}
    del began["trainer.stop_after"]
    assert read_sources(run) == began | changed


def test_a_changed_task_is_refused_unless_it_is_allowed(folder: Path, tmp_path: Path) -> None:
    run = train(config(folder, tmp_path, "plain", stop_after=1)).run_dir
    tasks = folder / "tasks.py"
    source = tasks.read_text()
    try:
        tasks.write_text(source.replace("32 <=", "33 <="))
        with pytest.raises(UserError, match=r"changed since the checkpoint: its code .*--allow task") as refused:
            resume(run)
        with pytest.raises(UserError, match="changed since the checkpoint: its code"):
            check_resume(run)  # without torch
        check_resume(run, allow=["data"])
        assert "its data" not in str(refused.value) and "its options" not in str(refused.value)
        assert not resume(run, allow=["task"]).interrupted  # another word for data
    finally:
        tasks.write_text(source)


@pytest.mark.parametrize("is_old", [False, True])
def test_the_message_names_each_ingredient_that_changed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_old: bool
) -> None:
    info = RunState.info

    def stored(state: RunState) -> dict[str, Any]:
        facts = info(state)
        if is_old:
            del facts["ingredients"]  # as a checkpoint of an earlier version
        return {**facts, "versions": {**facts["versions"], "grpo-core": "0.0.1"}}

    with monkeypatch.context() as patched:
        patched.setattr(RunState, "info", stored)
        run = train(config(folder, tmp_path, "plain", stop_after=1)).run_dir
    tasks = folder / "tasks.py"
    source = tasks.read_text()
    what = (
        r"its identity is \w{16} now and was \w{16} \(a checkpoint of that version"
        if is_old
        else r"its code \(.*\) and its data \(file, rows or prompts; hash \w{16} now, \w{16} then\)"
    )
    try:
        tasks.write_text(source.replace("32 <=", "33 <=").replace("lambda row: row.id,", "lambda row: row.id + '!',"))
        with pytest.raises(UserError, match=rf"{what}.*; grpo-core is \S+ now and was 0.0.1\. "):
            resume(run)
    finally:
        tasks.write_text(source)


def test_another_option_of_a_task_is_allowed_with_the_task(folder: Path, tmp_path: Path) -> None:
    run = train(config(folder, tmp_path, "plain", stop_after=1)).run_dir
    edited(run, lambda text: re.sub(r"^(task: .*)$", r"\1?seed=7", text, count=1, flags=re.MULTILINE))
    with pytest.raises(UserError, match=r"task is .*seed=7 now.*--allow task"):
        resume(run)
    assert not resume(run, allow=["task"]).interrupted


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("dat", "--allow dat: no such thing. Did you mean 'data'?"),
        ("trainer.learning_rat", "no setting 'trainer.learning_rat'.*learning_rate"),
    ],
)
def test_what_cannot_be_allowed_is_refused(name: str, message: str) -> None:
    with pytest.raises(UnknownNameError, match=message):
        allowed([name])
    assert allowed(["task", "trainer.learning_rate"]) == {"data", "task", "trainer.learning_rate"}


def test_another_machine_is_refused_unless_it_is_allowed(folder: Path, tmp_path: Path) -> None:
    run = train(config(folder, tmp_path, "plain", stop_after=1)).run_dir
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(threads + 1)
        with pytest.raises(UserError, match=r"threads is .* now and was .*--allow hardware"):
            resume(run)
    finally:
        torch.set_num_threads(threads)


def test_what_is_no_run_and_what_is_damaged_gets_one_line(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a run"):
        resume(tmp_path)
    run = train(config(folder, tmp_path / "runs", "plain", save_every=2, stop_after=4)).run_dir
    weights = run / "training_state" / "step_4" / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"model.safetensors.* --from-step 2"):
        resume(run)
    with pytest.raises(UserError, match=r"no checkpoint|no step"):
        resume(run, from_step=3)
    assert not resume(run, from_step=2).interrupted


KILLED = """
import sys
sys.path.insert(0, sys.argv[3])
from pathlib import Path
from resumed_runs import config
from grpo_core import train
train(config(Path(sys.argv[1]), Path(sys.argv[2]), "two iterations, two steps a batch", save_every=1))
"""


def killed_run(folder: Path, out: Path, after_s: float) -> Path | None:
    """Start a run in a process of its own and kill it; its folder, if it has a checkpoint."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    command = [sys.executable, "-c", KILLED, str(folder), str(out), str(GAMES.parent)]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list(out.glob("run_*/training_state/step_latest")):
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            process.wait()
            return next(iter(out.glob("run_*")), None)
        time.sleep(0.005)
    time.sleep(after_s)
    process.kill()
    process.wait()
    return next(out.glob("run_*"))


def finished(run: Path) -> RunResult | None:
    try:
        return resume(run)
    except UserError as error:
        assert "nothing is left to do" in str(error)  # the kill came after the end
        assert (run / "summary.json").is_file()
        return None


def test_a_killed_run_goes_on_from_its_last_whole_checkpoint(folder: Path, tmp_path: Path) -> None:
    straight = train(config(folder, tmp_path / "straight", "two iterations, two steps a batch")).run_dir
    run = killed_run(folder, tmp_path / "killed", after_s=0.15)
    assert run is not None
    finished(run)
    assert_same(straight, run)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_fifty_kills_at_random_moments(folder: Path, tmp_path: Path) -> None:
    import random

    straight = train(config(folder, tmp_path / "straight", "two iterations, two steps a batch")).run_dir
    moments = random.Random(0)
    for kill in range(50):
        run = killed_run(folder, tmp_path / f"killed{kill}", after_s=moments.uniform(0, 0.6))
        assert run is not None
        finished(run)
        assert_same(straight, run)
