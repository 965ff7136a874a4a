"""`grpo sweep` with a stand-in for the runs' processes; test_real_runs.py trains."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from waiting import eventually

from grpo_core.checkpoints.checksums import seal
from grpo_core.launch.sweep import processes
from grpo_core.launch.sweep.definition import validated
from grpo_core.launch.sweep.folder import SweepFolder
from grpo_sdk.cli import main as entry
from grpo_sdk.errors import UserError

FAKE = Path(__file__).parents[2] / "support" / "fake_run.py"
RATES = "trainer.learning_rate=0.001,0.002"
SLOW_STEPS = ("trainer.max_steps=8", "eval.size=16", "trainer.epsilon=0.25")
STEPS = ("trainer.max_steps=3", "eval.size=16")
LETTERS = ("task=math.arithmetic", "model=tiny")

SWEEPER = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from grpo_sdk.cli.main import main
from grpo_core.launch.sweep import processes
processes.COMMAND, processes.POLL_S = (sys.executable, sys.argv[1]), 0.02
sys.exit(main(["sweep", *sys.argv[2:]]))
"""
"""A sweep in a process of its own, which listens to Ctrl-C also where the tests run in the background."""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(processes, "COMMAND", (sys.executable, str(FAKE)))
    monkeypatch.setattr(processes, "POLL_S", 0.02)
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


@pytest.fixture
def sweep(call: Callable[..., Any]) -> Callable[..., Any]:
    """The results of a sweep as data; of one that is refused, what is printed."""
    return partial(call, "sweep")


def states(data: Any) -> list[str]:
    return [run["state"] for each in data["configurations"] for run in each["runs"]]


def started(folder: str) -> int:
    """Processes that were started."""
    return sum(len(list(path.glob("run_*"))) for path in Path(folder, "runs").iterdir())


def test_every_configuration_runs_with_every_seed_jobs_on_their_devices(
    sweep: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    data = sweep(*LETTERS, RATES, "seed=0,1", *STEPS, "--jobs", "2")
    assert states(data) == ["finished"] * 4
    assert (data["best"], data["metric"]) == (2, "eval/math.a/solved_rate")
    first, second = data["configurations"]
    assert (first["value"], second["value"]) == (pytest.approx(0.515), pytest.approx(0.525))
    assert (second["difference"], second["paired_seeds"]) == (pytest.approx(0.01), 2)
    rows = list(csv.DictReader(Path(data["folder"], "runs.csv").read_text().splitlines()))
    assert [(row["trainer.learning_rate"], row["seed"]) for row in rows] == [
        (rate, seed) for rate in ("0.001", "0.002") for seed in "01"
    ]
    share = max(1, len(os.sched_getaffinity(0)) // 2)
    for name, device in (("001_seed_0", 2), ("002_seed_0", 5)):
        assert f"threads {share}, devices {device}\n" in Path(data["folder"], "runs", name, "log.txt").read_text()


def test_runs_without_the_metric_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["sweep", "task=math.arithmetic,math.echo", "model=tiny", *STEPS]) == 0
    said = "note      without eval/math.a/solved_rate, and so not compared: 2; eval.task=TASK evaluates every run"
    assert said in capsys.readouterr().out


def test_a_failed_run_is_a_row_and_the_same_command_runs_what_is_missing(
    sweep: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    words = (*LETTERS, "trainer.beta=0.1,0", *STEPS, "--output-dir", "s")
    data = sweep(*words, code=1)
    assert (states(data), started("s")) == (["failed", "finished"], 2)
    failed = data["configurations"][0]["runs"][0]
    assert (failed["exit_code"], failed["last_line"]) == (1, r"error: the model broke down\x1b[31m")
    assert entry.main(["sweep", *words, "--show"]) == 1
    assert r"failed (exit code 1): error: the model broke down\x1b[31m" in capsys.readouterr().out
    sweep(*words, code=1)
    assert started("s") == 3, "the failed one once more"


def test_a_sweep_with_new_values_alone_keeps_its_earlier_runs(sweep: Callable[..., Any]) -> None:
    folder = ("--output-dir", "s")
    sweep(*LETTERS, RATES, *STEPS, *folder)
    shutil.rmtree("s/runs/001")
    added = (*LETTERS, "trainer.learning_rate=0.003,0.004", *STEPS, *folder)
    message = sweep(*added, "--baseline", "5", code=2)
    assert "--baseline 5: configurations are numbered from 1 to 4" in message
    data = sweep(*added, "--baseline", "2")
    assert (states(data), data["baseline"]) == (["pending", "finished", "finished", "finished"], 2)
    assert data["configurations"][3]["difference"] == pytest.approx(0.02)
    assert len(list(csv.DictReader(Path("s/runs.csv").read_text().splitlines()))) == 4
    data = sweep("s", "--baseline", "4")
    assert (states(data), data["baseline"]) == (["finished"] * 4, 4)


def test_a_run_that_is_interrupted_from_outside_is_not_success(sweep: Callable[..., Any]) -> None:
    data = sweep(*LETTERS, "trainer.entropy_coef=0.1,0", *STEPS, "--output-dir", "s", code=130)
    assert states(data) == ["interrupted", "finished"]
    assert states(sweep("s")) == ["finished", "finished"]
    assert started("s") == 2


def test_seeds_are_added_to_runs_without_one_and_other_settings_of_all_are_refused(
    sweep: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = (*LETTERS, RATES, *STEPS, "--output-dir", "s")
    sweep(*words)
    data = sweep(*words, "seed=0,1")
    assert [sorted(run["seed"] for run in each["runs"]) for each in data["configurations"]] == [[0, 1]] * 2
    assert [each["value"] for each in data["configurations"]] == [pytest.approx(0.515), pytest.approx(0.525)]
    assert started("s") == 4, "the first two are not trained again"
    sweep(*words)
    assert started("s") == 4, "neither are they by the first command"
    assert len(states(sweep("s"))) == 4
    message = sweep(*LETTERS, RATES, "trainer.max_steps=4", "eval.size=16", "--output-dir", "s", code=2)
    assert "s holds runs with other settings: trainer.max_steps was 3 and is 4. Give another --output-dir." in message
    monkeypatch.setenv("GRPO_TRAINER__BETA", "0.5")
    assert "trainer.beta was its default and is 0.5" in sweep("s", code=2)


def test_long_settings_of_all_runs_are_compared_whole() -> None:
    def begin_with(model: str) -> None:
        folder = SweepFolder(Path("s"))
        folder.begin(
            validated({"settings": {"model": model}, "parameters": {"trainer.beta": [0, 0.1]}}, ""), None, None
        )
        folder.save()

    Path("s").mkdir()
    long = f"/data/{'x' * 100}/checkpoint"
    begin_with(f"{long}-A")
    with pytest.raises(UserError, match=r"model was …x{8}/checkpoint-A and is …x{8}/checkpoint-B. Give another"):
        begin_with(f"{long}-B")
    with pytest.raises(UserError, match=r"model was /data/x{73}… and is tiny. Give another"):
        begin_with("tiny")


def test_a_signal_saves_the_runs_and_the_sweep_goes_on_later(sweep: Callable[..., Any]) -> None:
    process = begin("--jobs", "2")
    wait_for("*/run_*/logs/train_log.jsonl", 2)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert b"stopping: the runs are saved first" in errors
    assert states(sweep("s", "--show")) == ["interrupted", "interrupted"]
    assert len(list(Path("s/runs").glob("*/run_*/training_state/step_*"))) == 2
    assert states(sweep("s", "--jobs", "2")) == ["finished", "finished"]
    assert started("s") == 2, "both were resumed in their folders"


def test_a_run_whose_training_was_complete_is_not_trained_again() -> None:
    Path("s").mkdir()
    folder = SweepFolder(Path("s"))
    folder.begin(validated({"parameters": {"trainer.beta": [0, 0.1]}}, ""), None, None)
    (run,) = folder.add({"trainer.beta": "0"}, [])
    path = folder.folder_of(run) / "run_1"
    (path / "training_state" / "step_final").mkdir(parents=True)
    (path / "config.yaml").write_text("task: math.a\n")
    assert folder.next_words(run)[0] == "run"
    seal(path / "training_state" / "step_final", 1)  # killed in the final evaluation
    assert folder.next_words(run) == ["resume", str(path)]


@pytest.mark.skipif(sys.platform != "linux", reason="a parent's death is a signal on Linux only")
def test_one_sweep_works_in_a_folder_and_leaves_saved_runs_when_it_is_killed(sweep: Callable[..., Any]) -> None:
    process = begin()
    wait_for("*/run_*/logs/train_log.jsonl")
    assert "s is in use: another grpo sweep works in it" in sweep("s", code=2)
    process.kill()
    process.communicate()
    assert states(sweep("s", "--jobs", "2")) == ["finished", "finished"], "also where the orphan is still saving itself"
    assert started("s") == 2


def test_a_dry_run_prints_the_commands_and_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["sweep", *LETTERS, RATES, "seed=0,1", "--output-dir", "s", "--dry-run", "--json"]) == 0
    runs = json.loads(capsys.readouterr().out)
    assert [run["name"] for run in runs] == ["001_seed_0", "002_seed_0", "001_seed_1", "002_seed_1"]
    assert runs[0]["command"] == (
        "grpo run task=math.arithmetic model=tiny trainer.learning_rate=0.001 seed=0 --output-dir s/runs/001_seed_0"
    )
    assert not Path("s").exists()


def test_a_damaged_outcome_costs_one_run_and_a_damaged_plan_all(
    sweep: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    words = (*LETTERS, RATES, *STEPS, "--output-dir", "s")
    sweep(*words)
    Path("s/runs/001/outcome.json").write_bytes(b'{"exit_')
    assert entry.main(["sweep", *words, "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.err.count("s/runs/001/outcome.json is not JSON") == 1
    assert states(json.loads(captured.out)) == ["finished"] * 2 and started("s") == 2
    shutil.rmtree(next(Path("s/runs/001").glob("run_*")))
    assert states(sweep(*words)) == ["finished"] * 2 and started("s") == 2
    escaping = {"definition": {}, "runs": [{"name": "../x", "configuration": 1, "settings": {}}]}
    for plan in ("{", '{"definition": 3}', json.dumps(escaping)):
        Path("s/sweep.json").write_text(plan)
        assert "s/sweep.json" in sweep("s", code=2)


def test_optuna_goes_on_from_what_is_there(sweep: Callable[..., Any]) -> None:
    pytest.importorskip("optuna", reason="the extra sweep")
    Path("search.yaml").write_text(
        "method: optuna\ntrials: 4\nsettings: {task: math.arithmetic, model: tiny, trainer: {max_steps: 1}}\n"
        "parameters:\n  trainer.learning_rate: {min: 0.0001, max: 0.04, log: true}\n  trainer.loss_type: [grpo, dapo]\n"
    )
    data = sweep("search.yaml", "--output-dir", "s")
    best = max(data["configurations"], key=lambda each: each["value"])
    rates = [float(each["settings"]["trainer.learning_rate"]) for each in data["configurations"]]
    assert data["best"] == best["number"] and float(best["settings"]["trainer.learning_rate"]) == max(rates)
    assert len(states(sweep("s"))) == 4 and started("s") == 4, "nothing was left to do"
    text = Path("search.yaml").read_text().replace("trials: 4", "trials: 5").replace("[grpo, dapo]", "[cispo, dapo]")
    Path("search.yaml").write_text(text)
    assert len(states(sweep("search.yaml", "--output-dir", "s"))) == 5, "those outside of the new space are left out"


def test_optuna_ends_runs_below_the_median(sweep: Callable[..., Any]) -> None:
    pytest.importorskip("optuna", reason="the extra sweep")
    Path("search.yaml").write_text(
        "method: optuna\ntrials: 9\nsettings: {task: math.arithmetic, model: tiny, "
        "trainer: {max_steps: 6, epsilon: 0.1}}\n"
        "parameters: {trainer.learning_rate: {min: 0.0001, max: 0.04}}\n"
    )
    data = sweep("search.yaml", "--output-dir", "s", "--jobs", "2")
    pruned = [each for each in data["configurations"] if each["runs"][0]["state"] == "pruned"]
    assert pruned and all(run["exit_code"] == 130 for each in pruned for run in each["runs"])
    assert data["best"] not in [each["number"] for each in pruned]
    assert states(sweep("s")).count("pruned") == len(pruned), "they stay pruned"


def wait_for(files: str, number: int = 1) -> None:
    assert eventually(lambda: len([*Path("s/runs").glob(files)]) >= number, 30)


def begin(*words: str) -> subprocess.Popen[bytes]:
    sweep = (*LETTERS, RATES, *SLOW_STEPS, "--output-dir", "s", *words)
    return subprocess.Popen([sys.executable, "-c", SWEEPER, str(FAKE), *sweep], stderr=subprocess.PIPE)
