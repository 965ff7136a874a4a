"""Several processes of a run: one that is killed ends all in seconds, and a restart goes on as if nothing had been."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from launched_ranks import run_in
from resumed_runs import assert_same, model_and_tasks
from waiting import eventually

from grpo_core.checkpoints import CheckpointStore
from grpo_core.launch.meeting import Meeting
from grpo_core.launch.processes import Machine
from grpo_core.launch.supervisor import SAVING_S, SIGNALS, Command, Failure, _advice, supervise
from grpo_core.policy.ranks import joined
from grpo_sdk.cli.main import main
from grpo_sdk.errors import UserError
from grpo_sdk.launched import FOLDER_FILE

SOON_S = 15
"""Far above the second that it takes, and far below the half hour that processes wait for one another."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_and_tasks(tmp_path_factory.mktemp("supervised"))


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
    checkpoint = CheckpointStore(tmp_path).path("final")
    monkeypatch.setattr("grpo_core.launch.supervisor._failure", failure)
    words = ["resume", str(tmp_path), "--from-step", "final", "--additional-steps", "9"]
    assert supervise(Command(words, [], run=tmp_path), 2, Machine(), 2, print) == 0
    assert starts == [words, words, ["resume", str(tmp_path)]]


LAUNCHER = Path(__file__).parent / "programs" / "listening_launcher.py"

LOADS = """
import os, pathlib, time
if "RANK" in os.environ:
    pathlib.Path(__file__).with_name("loads_" + os.environ["RANK"]).touch()
    time.sleep(100)
"""
"""Ranks that load for ever."""


def started(folder: Path, out: Path, *words: str, settings: Sequence[str] = ()) -> subprocess.Popen[str]:
    """Start a small run, or a machine of one."""
    command = [sys.executable, str(LAUNCHER), "run", "--quiet", "--output-dir", str(out), *words]
    command += ["--task", f"{folder / 'tasks.py'}:letters", "--model", str(folder / "model"), "eval.size=4"]
    command += ["trainer.prompts_per_step=4", "trainer.num_generations=2", "trainer.save_every=2", "scoring.workers=1"]
    command += ["trainer.max_completion_length=8", "tracking.monitor=false", *settings]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    launcher = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    LAUNCHERS.append(launcher)
    return launcher


LAUNCHERS: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def nothing_goes_on() -> Iterator[None]:
    """End what a failed test has left: its ranks would train for ever beside the others."""
    yield
    while LAUNCHERS:
        if (launcher := LAUNCHERS.pop()).poll() is None:
            for process in (*psutil.Process(launcher.pid).children(recursive=True), launcher):
                process.kill()


def kill(rank: int, launcher: subprocess.Popen[str]) -> float:
    """Kill a rank; return the time."""
    (process,) = [each for each in psutil.Process(launcher.pid).children() if each.environ().get("RANK") == str(rank)]
    process.kill()
    return time.monotonic()


def wait_until(is_there: Callable[[], object], launcher: subprocess.Popen[str]) -> None:
    assert eventually(lambda: bool(is_there()) or launcher.poll() is not None, 100)
    assert is_there(), launcher.communicate()


def wait_for_checkpoint(launcher: subprocess.Popen[str], out: Path, step: int) -> None:
    wait_until(lambda: [*out.glob(f"run_*/training_state/step_{step}")], launcher)


def test_a_killed_rank_ends_the_run_in_seconds_and_one_line_says_how_to_go_on(folder: Path, tmp_path: Path) -> None:
    launcher = started(folder, tmp_path, "--nproc", "2", "--max-steps", "1000", settings=["eval.at_start=false"])
    wait_for_checkpoint(launcher, tmp_path, 2)
    killed = kill(1, launcher)
    _, stderr = launcher.communicate(timeout=60)

    assert launcher.returncode == 1 and time.monotonic() - killed < SOON_S
    (line,) = [line for line in stderr.splitlines() if not line.startswith("warning")]
    run = run_in(tmp_path)
    latest = CheckpointStore(run).path("latest")
    assert line.startswith("error: rank 1 was killed by SIGKILL, and the others were ended.")
    assert line.endswith(f"The last checkpoint is {latest}: grpo resume {run} --nproc 2")
    CheckpointStore(run).verify(latest)


def test_of_ctrl_c_while_the_model_loads_only_that_is_said(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text((folder / "tasks.py").read_text() + LOADS)
    (tmp_path / "model").symlink_to(folder / "model")
    launcher = started(tmp_path, tmp_path / "runs", "--nproc", "2", "--max-restarts", "0")
    wait_until(lambda: len([*tmp_path.glob("loads_?")]) == 2, launcher)
    launcher.send_signal(signal.SIGINT)
    stdout, stderr = launcher.communicate(timeout=60)
    assert (launcher.returncode, stdout) == (130, "")
    assert stderr.strip() == "stopped: interrupted; nothing more is written."


def while_torch_is_imported(folder: Path, program: str, *words: str, **environment: str) -> subprocess.Popen[str]:
    """Start `grpo run` with a program in place of torch and a shell for its parent."""
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").write_text(program)
    command = [sys.executable, "-m", "grpo_core", "run", "--model", "tiny", "--task", "math.arithmetic", *words]
    variables = {**os.environ, "PYTHONPATH": str(folder), **environment}
    return subprocess.Popen(
        ["sh", "-c", '"$@"; exit $?', "sh", *command], env=variables, cwd=folder, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def test_sigterm_while_the_launcher_imports_torch_is_one_line(tmp_path: Path) -> None:
    process = while_torch_is_imported(tmp_path, "import signal; signal.raise_signal(signal.SIGTERM)", "--nproc=2")
    assert process.communicate()[0] == "stopped: SIGTERM ended the processes; nothing more is written.\n"
    assert process.returncode == 130


@pytest.mark.skipif(sys.platform != "linux", reason="a parent's death is a signal on Linux only")
def test_a_rank_whose_launcher_is_killed_is_told_to_end(tmp_path: Path) -> None:
    ranks = {"RANK": "0", "WORLD_SIZE": "2", FOLDER_FILE: str(tmp_path / "run")}
    launcher = while_torch_is_imported(tmp_path, "import time; print('up', flush=True); time.sleep(60)", **ranks)
    assert launcher.stdout is not None and "up\n" in launcher.stdout
    launcher.kill()
    launcher.communicate(timeout=SOON_S)  # until the rank has closed its end, too


@pytest.mark.parametrize(("steps", "save_every", "advice"), [
    ("", 20, "No step was done before it."),
    ("{}\n", 20, "No checkpoint was saved before it (trainer.save_every=20)."),
    ("{}\n", None, "No checkpoint was saved before it (trainer.save_every=N saves one every N steps)."),
])  # fmt: skip
def test_advice_fits_what_the_run_has_done(tmp_path: Path, steps: str, save_every: int | None, advice: str) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "train_log.jsonl").write_text(steps)
    assert _advice(tmp_path, None, Command([], [], save_every=save_every), []) == advice


@pytest.mark.slow
@pytest.mark.timeout(280)
def test_a_restart_ends_bit_for_bit_as_the_undisturbed_run(folder: Path, tmp_path: Path) -> None:
    words = ("--nproc", "2", "--max-steps", "40")
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under nohup; a child inherits it
    try:
        undisturbed = started(folder, tmp_path / "undisturbed", *words)
    finally:
        signal.signal(signal.SIGHUP, before)
    disturbed = started(folder, tmp_path / "disturbed", *words, "--max-restarts", "2")
    wait_for_checkpoint(disturbed, tmp_path / "disturbed", 6)
    kill(0, disturbed)
    undisturbed.send_signal(signal.SIGHUP)
    assert undisturbed.communicate(timeout=200)[1] is not None and undisturbed.returncode == 0
    _, stderr = disturbed.communicate(timeout=200)

    assert disturbed.returncode == 0, stderr
    run = run_in(tmp_path / "disturbed")  # the same one, resumed
    assert re.search(rf"restart 1 of 2: rank 0 was killed by SIGKILL.*; grpo resume {run} --quiet", stderr)
    assert_same(run_in(tmp_path / "undisturbed"), run)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return int(free.getsockname()[1])


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A suite in the background ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(("number", "rank", "line"), [
    (signal.SIGTERM, 0, "waiting   for 3 more machines at "),
    (signal.SIGINT, 1, "waiting   for the machine with --node-rank 0 at "),
])  # fmt: skip
def test_a_signal_ends_the_wait_for_other_machines(
    number: signal.Signals, rank: int, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in (SIGNALS, "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"):
        monkeypatch.setenv(name, "")  # which is undone after the test
        monkeypatch.delenv(name)
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=lambda seconds: signal.raise_signal(number))
    monkeypatch.setattr("grpo_core.launch.meeting.time", clock)
    monkeypatch.setattr("grpo_core.launch.meeting.MEETING_S", 5)  # where the signal ends nothing, the wait does
    endpoint = f"localhost:{free_port()}"
    words = ("--nnodes=4", "--nproc=1", f"--rdzv-endpoint={endpoint}", f"--node-rank={rank}")
    assert main(["run", "--task=math.arithmetic", "--model=tiny", "trainer.prompts_per_step=4", *words]) == 130
    printed = capsys.readouterr()
    assert not printed.out
    said = rf"{line}{endpoint}\n+stopped: .*; nothing more is written\.\n"  # a line behind a terminal's ^C
    assert re.fullmatch(said, printed.err), printed.err
    assert os.environ["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] == str(SAVING_S), "torchrun's 30 s may be less than a step"


def test_a_machine_that_stops_waiting_is_waited_for_again() -> None:
    port, said = free_port(), []

    def stops(line: str) -> None:
        said.append(line)
        raise KeyboardInterrupt

    for meeting in [Meeting(Machine(rank, 2, "localhost", port), stops) for rank in (0, 1)]:
        with pytest.raises(KeyboardInterrupt):
            meeting.gather(0)
    assert said == [f"waiting   for 1 more machine at localhost:{port}"] * 2


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
    wait_for_checkpoint(second, tmp_path, 4)
    kill(1, second)
    results = [machine.communicate(timeout=200) for machine in (first, second)]

    assert (first.returncode, second.returncode) == (0, 0), results
    run = run_in(tmp_path)
    assert results[0][0].strip() == str(run) and not results[1][0], "the machine with --node-rank 0 prints and writes"
    assert re.search("restart 1 of 1: .* lost contact with the others; grpo resume", results[0][1])
    assert re.search("restart 1 of 1: rank 1 was killed by SIGKILL.*; grpo resume", results[1][1])
    assert (run / "summary.json").exists()


@pytest.mark.slow
@pytest.mark.timeout(280)
@pytest.mark.skipif(sys.platform != "linux", reason="stops processes, which are found by their parent")
def test_a_machine_whose_network_is_silent_is_given_up_in_time(folder: Path, tmp_path: Path) -> None:
    words = ("--nnodes=2", f"--rdzv-endpoint=localhost:{free_port()}", "--max-steps=100000")
    first, second = (
        started(folder, tmp_path, *words, f"--node-rank={rank}", settings=["trainer.ddp_timeout=10"]) for rank in (0, 1)
    )
    wait_for_checkpoint(first, tmp_path, 4)
    silent = psutil.Process(second.pid)
    stopped = [silent, *silent.children(recursive=True)]
    for process in stopped:
        process.suspend()  # its connections stay, as behind a cable that was cut
    _, stderr = first.communicate(timeout=10 + 35)  # beyond the timeout torchrun gives a process half a minute to end
    for process in reversed(stopped):
        process.kill()
    second.communicate()

    assert first.returncode == 1 and "the processes of this machine have lost contact with the others" in stderr
    latest = CheckpointStore(run_in(tmp_path)).path("latest")
    CheckpointStore(run_in(tmp_path)).verify(latest)
    assert f"The last checkpoint is {latest}: grpo resume {run_in(tmp_path)}" in stderr


def test_ranks_that_torchrun_restarts_do_not_begin_another_run(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "TORCHELASTIC_RESTART_COUNT": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match=r"torchrun has restarted .* grpo run --max-restarts K"), joined("cpu", 1):
        pass
