"""Several processes of a run: one that is killed ends all in seconds, and a restart goes on as if nothing had been."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
import pytest
import torch
from resumed_runs import TASKS, assert_same
from safetensors.torch import load_file, save_file

from grpo_core.checkpoints import CheckpointStore
from grpo_core.checkpoints.reader import CheckpointReader
from grpo_core.cli.main import main
from grpo_core.errors import UserError
from grpo_core.launch.meeting import Meeting
from grpo_core.launch.processes import Machine
from grpo_core.launch.supervisor import Command, Failure, _advice, supervise
from grpo_core.policy.fresh import fresh_model
from grpo_core.policy.ranks import joined

SOON_S = 15
"""Far above the second that it takes, and far below the half hour that processes wait for one another."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("supervised")
    for part in fresh_model("tiny", 0):
        part.save_pretrained(path / "model")
    (path / "tasks.py").write_text(TASKS)
    return path


def test_a_checkpoint_that_replaces_another_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, starts = CheckpointStore(tmp_path), []

    def failure(words: Sequence[str], *_: object) -> Failure | None:
        starts.append(list(words))
        if len(starts) == 1:
            store.go_back_to(checkpoint)  # as the resume does, which then fails before it saves
        if len(starts) == 2:
            with store.writing("final") as folder:
                (folder / "weights").write_text("of the additional steps")
        return Failure("rank 1 failed", 1) if len(starts) < 3 else None

    for step in ("final", 7):
        with store.writing(step) as checkpoint:
            (checkpoint / "weights").write_text(str(step))
    checkpoint = CheckpointReader(tmp_path).path("final")
    monkeypatch.setattr("grpo_core.launch.supervisor._failure", failure)
    words = ["resume", str(tmp_path), "--from-step", "final", "--additional-steps", "9"]
    assert supervise(Command(words, [], run=tmp_path), 2, Machine(), 2, print) == 0
    assert starts == [words, words, ["resume", str(tmp_path)]]


LISTENS = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from grpo_core.cli.start import main
sys.exit(main())
"""
"""Tests in the background ignore Ctrl-C, and so would their children."""

LOADS = """
import os, pathlib, time
if "RANK" in os.environ:
    pathlib.Path(__file__).with_name("loads_" + os.environ["RANK"]).touch()
    time.sleep(100)
"""
"""Ranks that load for ever."""

SLOW_STEP = """
import os, pathlib, time
if "RANK" in os.environ:
    from grpo_core.training.update import Updater
    update = Updater.update
    def slow(*arguments, **options):
        pathlib.Path(__file__).with_name("updates").touch()
        time.sleep(35)
        return update(*arguments, **options)
    Updater.update = slow
"""
"""Steps that take longer than torchrun waits for processes that it has told to end."""


def started(folder: Path, out: Path, *words: str, settings: Sequence[str] = ()) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", LISTENS, "run", "--quiet", "--output-dir", str(out), *words]
    command += ["--task", f"{folder / 'tasks.py'}:letters", "--model", str(folder / "model"), "eval.size=4"]
    command += ["trainer.prompts_per_step=4", "trainer.num_generations=2", "trainer.save_every=2", "scoring.workers=1"]
    command += ["trainer.max_completion_length=8", "tracking.monitor=false"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*command, *settings], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def wait_until(is_there: Callable[[], object], launcher: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 100
    while not is_there():
        assert launcher.poll() is None and time.monotonic() < deadline, launcher.communicate()
        time.sleep(0.05)


def wait_for_checkpoint(launcher: subprocess.Popen[str], out: Path, step: int) -> None:
    wait_until(lambda: [*out.glob(f"run_*/training_state/step_{step}")], launcher)


def kill_rank(rank: int, launcher: subprocess.Popen[str], out: Path, step: int) -> float:
    """Kill a rank once a checkpoint is there; return the time."""
    wait_for_checkpoint(launcher, out, step)
    (process,) = [each for each in psutil.Process(launcher.pid).children() if each.environ().get("RANK") == str(rank)]
    process.kill()
    return time.monotonic()


def run_in(out: Path) -> Path:
    (run,) = out.glob("run_*")
    return run


def test_a_killed_rank_ends_the_run_in_seconds_and_one_line_says_how_to_go_on(folder: Path, tmp_path: Path) -> None:
    launcher = started(folder, tmp_path, "--nproc", "2", "--max-steps", "1000")
    killed = kill_rank(1, launcher, tmp_path, 4)
    _, stderr = launcher.communicate(timeout=60)

    assert launcher.returncode == 1 and time.monotonic() - killed < SOON_S
    (line,) = [line for line in stderr.splitlines() if not line.startswith("warning")]
    run = run_in(tmp_path)
    latest = CheckpointReader(run).path("latest")
    assert line == (
        f"error: rank 1 was killed by SIGKILL, and the others were ended. The last checkpoint is {latest}: "
        f"grpo resume {run} --nproc 2"
    )
    CheckpointReader(run).verify(latest)


def loading(folder: Path, path: Path) -> subprocess.Popen[str]:
    """Start two ranks; return when both are loading."""
    (path / "tasks.py").write_text((folder / "tasks.py").read_text() + LOADS)
    shutil.copytree(folder / "model", path / "model")
    launcher = started(path, path / "runs", "--nproc", "2", "--max-restarts", "0")
    wait_until(lambda: (path / "loads_0").exists() and (path / "loads_1").exists(), launcher)
    return launcher


@pytest.mark.parametrize(
    ("number", "line"),
    [
        (signal.SIGTERM, "stopped: SIGTERM ended the processes; nothing more is written."),
        (signal.SIGINT, "stopped: interrupted; nothing more is written."),
    ],
)
def test_a_signal_while_the_model_loads_is_one_line(
    folder: Path, tmp_path: Path, number: signal.Signals, line: str
) -> None:
    launcher = loading(folder, tmp_path)
    launcher.send_signal(number)
    stdout, stderr = launcher.communicate(timeout=60)
    assert (launcher.returncode, stdout, stderr.strip()) == (130, "", line)
    assert not [*tmp_path.glob("runs/*")]


def test_sigterm_while_the_launcher_imports_torch_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("import signal; signal.raise_signal(signal.SIGTERM)")
    done = subprocess.run(
        [sys.executable, "-m", "grpo_core", "run", "--nproc", "2", "--model", "tiny", "--task", "math.arithmetic"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)}, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (130, "stopped: SIGTERM ended the processes; nothing more is written.\n")


def test_of_a_rank_that_is_killed_while_it_loads_only_that_is_said(folder: Path, tmp_path: Path) -> None:
    launcher = loading(folder, tmp_path)
    (process,) = [each for each in psutil.Process(launcher.pid).children() if each.environ().get("RANK") == "1"]
    process.kill()
    _, stderr = launcher.communicate(timeout=60)
    line = "error: rank 1 was killed by SIGKILL, and the others were ended. No step was done before it."
    assert (launcher.returncode, stderr.splitlines()) == (1, [line])


@pytest.mark.slow
@pytest.mark.parametrize("sharding", ["none", "full"])
def test_a_model_of_nan_is_one_line_of_all_ranks(folder: Path, tmp_path: Path, sharding: str) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    weights = load_file(tmp_path / "model" / "model.safetensors")
    save_file({name: torch.full_like(each, torch.nan) for name, each in weights.items()},
              tmp_path / "model" / "model.safetensors", metadata={"format": "pt"})  # fmt: skip
    launcher = started(tmp_path, tmp_path / "runs", "--nproc", "2", settings=[f"trainer.sharding={sharding}"])
    _, stderr = launcher.communicate(timeout=100)
    (line,) = stderr.splitlines()
    assert launcher.returncode == 1 and line.startswith("error: the model's logits are NaN, infinite or all −inf")


@pytest.mark.parametrize(
    ("save_every", "log", "advice"),
    [
        (20, "", "No step was done before it."),
        (20, "{}\n", "No checkpoint was saved before it (trainer.save_every=20)."),
        (None, "{}\n", "No checkpoint was saved before it (trainer.save_every=N saves one every N steps)."),
    ],
)
def test_advice_fits_what_the_run_has_done(tmp_path: Path, save_every: int | None, log: str, advice: str) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "train_log.jsonl").write_text(log)
    assert _advice(tmp_path, None, Command([], [], save_every=save_every), []) == advice


@pytest.mark.slow  # a step of 35 s
@pytest.mark.timeout(280)
def test_a_signal_waits_for_a_long_step_and_saves_the_run(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text((folder / "tasks.py").read_text() + SLOW_STEP)
    shutil.copytree(folder / "model", tmp_path / "model")
    launcher = started(tmp_path, tmp_path / "runs", "--nproc", "2", "--max-steps", "9")
    wait_until((tmp_path / "updates").exists, launcher)
    launcher.send_signal(signal.SIGTERM)
    _, stderr = launcher.communicate(timeout=100)
    assert launcher.returncode == 130 and "warning   stopping: the run is saved first" in stderr
    assert CheckpointReader(run_in(tmp_path / "runs")).path("latest").name == "step_1"


@pytest.mark.slow
@pytest.mark.timeout(280)
def test_under_nohup_a_closed_terminal_does_not_end_the_run(folder: Path, tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # which a child inherits
    try:
        launcher = started(folder, tmp_path, "--nproc", "2", "--max-steps", "9")
    finally:
        signal.signal(signal.SIGHUP, before)
    wait_for_checkpoint(launcher, tmp_path, 2)
    launcher.send_signal(signal.SIGHUP)
    _, stderr = launcher.communicate(timeout=100)
    assert launcher.returncode == 0, stderr


@pytest.mark.slow
@pytest.mark.timeout(280)
def test_a_restart_ends_bit_for_bit_as_the_undisturbed_run(folder: Path, tmp_path: Path) -> None:
    words = ("--nproc", "2", "--max-steps", "40")
    undisturbed = started(folder, tmp_path / "undisturbed", *words)
    disturbed = started(folder, tmp_path / "disturbed", *words, "--max-restarts", "2")
    kill_rank(0, disturbed, tmp_path / "disturbed", 6)
    assert undisturbed.communicate(timeout=200)[1] is not None and undisturbed.returncode == 0
    _, stderr = disturbed.communicate(timeout=200)

    assert disturbed.returncode == 0, stderr
    run = run_in(tmp_path / "disturbed")  # the same one, resumed
    assert (
        f"restart 1 of 2: rank 0 was killed by SIGKILL, and the others were ended; grpo resume {run} --quiet" in stderr
    )
    assert_same(run_in(tmp_path / "undisturbed"), run)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return int(free.getsockname()[1])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    ("rank", "line"),
    [(0, "waiting   for 3 more machines at "), (1, "waiting   for the machine with --node-rank 0 at ")],
)
def test_a_signal_ends_the_wait_for_other_machines(
    folder: Path, tmp_path: Path, number: signal.Signals, rank: int, line: str
) -> None:
    endpoint = f"localhost:{free_port()}"
    words = ("--nnodes=4", f"--rdzv-endpoint={endpoint}", f"--node-rank={rank}")
    launcher = started(folder, tmp_path, *words)
    assert launcher.stderr is not None
    assert launcher.stderr.readline() == f"{line}{endpoint}\n"
    launcher.send_signal(number)
    stdout, stderr = launcher.communicate(timeout=SOON_S)
    assert (launcher.returncode, stdout) == (130, "")
    assert re.fullmatch(r"\n?stopped: .*; nothing more is written\.\n", stderr)  # a line behind a terminal's ^C


def test_a_machine_that_stops_waiting_is_waited_for_again() -> None:
    first, others = Machine(0, 2, "localhost", free_port()), []

    def stops(line: str) -> None:
        others.append(line)
        raise KeyboardInterrupt

    meeting = Meeting(first, stops)
    with pytest.raises(KeyboardInterrupt):
        meeting.gather(0)
    second = Meeting(Machine(1, 2, first.first, first.port), stops)
    with pytest.raises(KeyboardInterrupt):
        second.gather(0)
    assert others == [f"waiting   for 1 more machine at localhost:{first.port}"] * 2


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("host", ["no-such-host.invalid", "x;id", "a..b"])
def test_a_host_that_is_none_is_one_line(host: str, rank: int) -> None:
    with pytest.raises(UserError, match=r"^--rdzv-endpoint .*: no such host \(.*\)\.$"):
        Meeting(Machine(rank, 2, host), print)


@pytest.mark.slow
@pytest.mark.timeout(280)
def test_two_machines_meet_and_go_on_together_after_a_rank_of_one_is_killed(folder: Path, tmp_path: Path) -> None:
    words = ("--nnodes=2", f"--rdzv-endpoint=localhost:{free_port()}", "--max-restarts", "1", "--max-steps", "30")
    second = started(folder, tmp_path, *words, "--node-rank", "1")  # which waits for the first
    first = started(folder, tmp_path, *words, "--node-rank", "0")
    kill_rank(1, second, tmp_path, 4)
    results = [machine.communicate(timeout=200) for machine in (first, second)]

    assert (first.returncode, second.returncode) == (0, 0), results
    run = run_in(tmp_path)
    assert results[0][0].strip() == str(run) and not results[1][0], "the machine with --node-rank 0 prints and writes"
    assert (
        "restart 1 of 1: the processes of this machine have lost contact with the others; grpo resume" in results[0][1]
    )
    assert "restart 1 of 1: rank 1 was killed by SIGKILL, and the others were ended; grpo resume" in results[1][1]
    assert (run / "summary.json").exists()


def test_a_signal_to_the_launcher_saves_the_run(folder: Path, tmp_path: Path) -> None:
    launcher = started(folder, tmp_path, "--nproc", "2", "--max-restarts", "3", "--max-steps", "1000")
    wait_for_checkpoint(launcher, tmp_path, 2)
    launcher.send_signal(signal.SIGTERM)
    _, stderr = launcher.communicate(timeout=60)

    assert launcher.returncode == 130, stderr
    assert stderr.splitlines() == ["warning   stopping: the run is saved first"]


@pytest.mark.skipif(sys.platform != "linux", reason="a parent's death is a signal on Linux only")
def test_ranks_whose_launcher_is_killed_save_the_run_and_end(folder: Path, tmp_path: Path) -> None:
    launcher = started(folder, tmp_path, "--nproc", "2", "--max-steps", "1000")
    wait_for_checkpoint(launcher, tmp_path, 2)
    launcher.kill()
    _, stderr = launcher.communicate(timeout=SOON_S)  # which the ranks write to as long as they live

    assert stderr == "warning   stopping: the run is saved first\n"
    run = run_in(tmp_path)
    assert json.loads((run / "summary.json").read_text())["interrupted"]
    CheckpointReader(run).verify(CheckpointReader(run).path("latest"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--nproc 0", r"--nproc '0' must be the number of processes on this machine, 1 or more\."),
        ("--max-restarts x", r"--max-restarts 'x' must be a number of restarts, 0 or more\."),
        ("--node-rank 0", r"--node-rank and --rdzv-endpoint are for a run on several machines: add --nnodes N\."),
        ("--nnodes 2", r"--nnodes 2 needs --node-rank: grpo run --nnodes 2 --node-rank I --rdzv-endpoint HOST:PORT"),
        ("--nnodes 2 --node-rank 2 --rdzv-endpoint a:1", r"--node-rank 2 must be below --nnodes 2"),
        ("--nnodes 2 --node-rank 0 --rdzv-endpoint a:99999", r"--rdzv-endpoint 'a:99999' must be HOST:PORT"),
        ("--nproc 2 --max-restarts 1 --stop-after 3", r"--max-restarts with --stop-after: .* Leave one out\."),
        ("--nnodes 3 --nproc 1 --node-rank 0 --rdzv-endpoint a", r"3 ranks cannot share the 32 prompts"),
    ],
)
def test_mistakes_are_found_before_a_process_is_started(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *words.split()]) == 2
    assert re.search(message, capsys.readouterr().err)


def test_ranks_that_torchrun_restarts_do_not_begin_another_run(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "TORCHELASTIC_RESTART_COUNT": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match=r"torchrun has restarted .* grpo run --max-restarts K"), joined("cpu", 1):
        pass
