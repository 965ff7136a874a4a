"""`grpo launch ssh` against a real sshd of this machine."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from ssh_server import ServerError, ssh_server

from grpo_core.cli.main import main
from grpo_core.errors import UserError
from grpo_core.launch import packages, ssh_scripts
from grpo_core.launch.ssh import Host
from grpo_core.tracking.runs import find_runs, read_run

HOSTILE = "it's $(touch hacked) `touch hacked`; touch hacked"

SMALL = (
    "--task=math.arithmetic", "--model=tiny", "eval.size=8", "trainer.prompts_per_step=2",
    "trainer.num_generations=4", "trainer.max_completion_length=8",
)  # fmt: skip

FAKE_GRPO = """#!/bin/bash
case "$*" in
  *--dry-run*wrong*|*wrong*--dry-run*) echo "error: the host knows no task wrong" >&2; exit 2;;
  *--dry-run*) exit 0;;
esac
printf '%s\\n' "$@" > "$PWD/words"
trap 'echo saved; exit 130' TERM
mkdir -p "${@: -1}/run_1"
echo begun
case "$*" in *short*) exit 3;; esac
for _ in $(seq 600); do sleep 0.1; done
"""
"""A grpo that starts in no time: it notes its words, and saves at SIGTERM."""


FAKE_SSH = """#!/bin/bash
while [ "$1" != -- ]; do
  if [ "$1" = -O ]; then exit 0; fi
  shift
done
unset TMUX # of a terminal that runs the tests
export HOME="$0.home" TMUX_TMPDIR="${0%/*}" PATH="${0%/*}:/usr/local/bin:/usr/bin:/bin"
cd "$HOME" && exec bash -c "$3"
"""
"""An ssh that runs the command here, in a home folder beside itself."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """An ssh command, and the folder whose `bin` its sessions find first."""
    folder = tmp_path_factory.mktemp("sshd")
    try:
        with ssh_server(folder) as command:
            yield command, folder
    except ServerError as error:
        pytest.skip(str(error))


Launch = Callable[..., tuple[int, str, str]]


@pytest.fixture
def launch(server: tuple[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Launch]:
    """Run `grpo launch ssh` with a hostile working folder of its own and a fake grpo there."""
    folder = tmp_path / HOSTILE
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / ".venv" / "bin" / "grpo").write_text(FAKE_GRPO)
    (folder / ".venv" / "bin" / "grpo").chmod(0o755)
    session = re.sub(r"\W", "-", tmp_path.name)[-30:]

    def launch(*words: str) -> tuple[int, str, str]:
        own = ("--ssh", server[0], "--folder", str(folder), "--session", session)
        code = main(["launch", "ssh", "127.0.0.1", *own, *words])
        return (code, *capsys.readouterr())

    launch.place = folder / session  # type: ignore[attr-defined] # the session's folder
    yield launch
    launch("--stop")


def place(launch: Launch) -> Path:
    folder = launch.place  # type: ignore[attr-defined]
    assert isinstance(folder, Path)
    return folder


def wait_for(path: Path, text: str) -> None:
    deadline = time.monotonic() + 60
    while not path.is_file() or text not in path.read_text():
        assert time.monotonic() < deadline, path.read_text() if path.is_file() else path
        time.sleep(0.1)


def test_a_run_is_started_stopped_resumed_and_pulled(launch: Launch, tmp_path: Path) -> None:
    code, printed, problem = launch("--task", HOSTILE, "--nproc", "2")
    assert code == 0, problem
    assert printed.startswith("started ")
    wait_for(place(launch) / "log", "begun")
    words = (place(launch).parent / "words").read_text().splitlines()
    assert words == ["run", "--task", HOSTILE, "--nproc", "2", "--output-dir", place(launch).name]

    code, _, problem = launch("--task=other")
    assert code == 2 and "has a session" in problem

    assert launch("--stop")[1] == "stopped   exit code 130\n"
    assert "saved" in (place(launch) / "log").read_text()
    assert launch("--stop")[1] == "session   not running\n"

    assert launch("--resume")[0] == 0
    wait_for(place(launch).parent / "words", f"resume\n{place(launch).name}/run_1\n--nproc\n2\n")
    assert launch("--pull", str(tmp_path / "pulled"))[0] == 0
    assert {"log", "run_1", "run.sh"} <= {path.name for path in (tmp_path / "pulled").iterdir()}
    assert not [*tmp_path.rglob("hacked")]


@pytest.mark.skipif(shutil.which("tmux") is None, reason="no tmux: apt-get install tmux")
@pytest.mark.parametrize("folder", ["grpo", "my runs/it's here", "/absolute one"])
def test_a_folder_may_be_relative_to_the_home_folder(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in (("an ssh", FAKE_SSH), ("rsync", ""), ("grpo", FAKE_GRPO)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (home := tmp_path / "an ssh.home").mkdir()
    folder = str(tmp_path) + folder if folder.startswith("/") else folder
    ssh = ["--ssh", shlex.quote(str(tmp_path / "an ssh"))]
    own = [*ssh, *([] if folder == "grpo" else ["--folder", folder])]
    try:
        assert main(["launch", "ssh", "somewhere", *own, "--task=x"]) == 0, capsys.readouterr().err
        wait_for(home / folder / "run" / "log", "begun")
        printed = capsys.readouterr().out
        assert f"grpo {shlex.join(['launch', 'ssh', 'somewhere', *own])} --tail " in printed
        assert main(["launch", "ssh", "somewhere", *own, "--stop"]) == 0
        assert capsys.readouterr().out == "stopped   exit code 130\n"
        assert main(["launch", "ssh", "somewhere", *own, "--resume"]) == 0
        wait_for(home / folder / "words", "resume\nrun/run_1\n")
    finally:
        own_server = {"PATH": os.environ["PATH"], "TMUX_TMPDIR": str(tmp_path)}
        subprocess.run(["tmux", "kill-server"], env=own_server, capture_output=True)


def test_what_the_host_refuses_is_not_started(launch: Launch) -> None:
    code, _, problem = launch("--task=wrong")
    assert (code, problem) == (1, "error: ssh 127.0.0.1: error: the host knows no task wrong\n")
    assert not place(launch).exists()


def test_what_needs_a_session_says_so_where_there_is_none(
    launch: Launch, server: tuple[str, Path], tmp_path: Path
) -> None:
    pulled = tmp_path / "pulled"
    assert f"error: no session {place(launch).name} was started here" in launch("--pull", str(pulled))[2]
    assert not pulled.exists()
    assert f"nothing to resume: there is no run in {place(launch)}" in launch("--resume")[2]
    assert not place(launch).exists()
    assert launch("--stop")[:2] == (0, "session   not running\n")
    with subprocess.Popen(["sleep", "60"]) as another:  # whose number a restart of the host has left in the file
        place(launch).mkdir()
        (place(launch) / "pid").write_text(f"{another.pid}\n")
        assert launch("--stop")[:2] == (0, "session   not running\n")
        assert another.poll() is None
        another.kill()
    own = ["--folder", str(tmp_path / "nowhere"), "--ssh", server[0]]
    for action, problem in (("--tail", "no session run was started here"), ("--attach", "no session run runs here")):
        command = [sys.executable, "-m", "grpo_core", "launch", "ssh", "127.0.0.1", *own, action]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and problem in done.stdout + done.stderr
    assert main(["launch", "ssh", "127.0.0.1", *own, "--stop"]) == 0


def test_a_run_that_ends_at_once_shows_its_log(launch: Launch) -> None:
    code, _, problem = launch("--task=short")
    assert code == 1 and "ended with exit code 3" in problem


def test_files_are_sent(launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home := tmp_path / "home").mkdir()
    monkeypatch.chdir(home)
    (home / "tasks").mkdir()
    (home / "tasks" / f"{HOSTILE}.py".replace("/", "")).write_text("1")
    assert launch("--send", "./tasks", "--task=x")[0] == 0
    assert [path.name for path in (place(launch).parent / "tasks").iterdir()] == [f"{HOSTILE}.py"]


@pytest.mark.parametrize(
    ("gpus", "processes", "problem"),
    [
        ("0, 10\n1, 12", "", ""),
        ("0, 10", "4711, 40000, python", "process 4711 (python) uses 40000 MiB of a GPU"),
        ("0, 10\n1, 2048", "", "2048 MiB of GPU 1 are in use"),  # by a process of a container that nvidia-smi hides
    ],
)
def test_a_busy_gpu_is_left_alone(
    gpus: str, processes: str, problem: str, launch: Launch, server: tuple[str, Path]
) -> None:
    smi = server[1] / "bin" / "nvidia-smi"
    smi.write_text(f"#!/bin/sh\ncase $1 in *gpu=*) echo '{gpus}';; *) printf '%s' '{processes}';; esac\n")
    smi.chmod(0o755)
    try:
        code, _, said = launch("--task=x")
        assert code == (2 if problem else 0) and problem in said
        assert not problem or launch("--task=x", "--force")[0] == 0
    finally:
        smi.unlink()


def test_a_log_is_followed_and_left(launch: Launch, server: tuple[str, Path]) -> None:
    assert launch("--task=x")[0] == 0
    command = [sys.executable, "-m", "grpo_core", "launch", "ssh", "127.0.0.1", "--ssh", server[0], "--tail"]
    command += ["--folder", str(place(launch).parent), "--session", place(launch).name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as tail:
        assert tail.stdout is not None
        assert tail.stdout.readline().strip() == "grpo run --task=x"
        assert tail.stdout.readline().strip() == "begun"
        tail.send_signal(signal.SIGTERM)
    assert (place(launch) / "pid").exists()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--", "-oProxyCommand=touch"), "is not a host"),
        (("a b",), "is not a host"),
        (("$(touch hacked)",), "is not a host"),
        (("h", "--session", "a/b"), "use letters"),
        (("h", "--folder", "~/x"), "relative to the home folder"),
        (("h", "--ssh", "no-such-ssh"), "no no-such-ssh here"),
        (("h", "--ssh", "'"), "No closing quotation"),
        (("h", "--stop", "--task", "x"), "--stop is given alone"),
        (("h", "--stop", "--pull", "x"), "--stop and --pull: give one of them."),
        (("h", "--tail", "--stop"), "--tail and --stop: give one of them."),
        (("h", "--boostrap"), "Did you mean '--bootstrap'?"),
        (("h", "trainer.max_stepps=1"), "Did you mean 'trainer.max_steps'?"),
        (("h", "--task=a", "trainer.sharding=full", "--dry-run"), "this is the only one"),
        (("h", "--task=a", "--ssh", "ssh -p 1 -o ConnectTimeout=1 -o HostName=127.0.0.1"), "Connection refused"),
    ],
)
def test_mistakes_are_one_line(
    words: Sequence[str],
    problem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["launch", "ssh", *words]) in (1, 2)
    assert problem in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    "script",
    [
        ssh_scripts.facts_script(HOSTILE, "run"),
        ssh_scripts.check_script(HOSTILE, HOSTILE, ["run", HOSTILE]),
        ssh_scripts.run_script(HOSTILE, "run", HOSTILE, ["run", HOSTILE]),
        ssh_scripts.run_script(HOSTILE, "run", "grpo", None),
        ssh_scripts.start_script(HOSTILE, "run", "grpo", ["run", HOSTILE]),
        ssh_scripts.start_script(HOSTILE, "run", "grpo", None),
        ssh_scripts.stop_script(HOSTILE, "run"),
        ssh_scripts.attach_script("run"),
        ssh_scripts.tail_script(HOSTILE, "run"),
        ssh_scripts.place_script(HOSTILE, "run"),
        ssh_scripts.bootstrap_script(HOSTILE, "3.11", [HOSTILE]),
    ],
)
def test_scripts_pass_shellcheck(script: str) -> None:
    shellcheck = [Path(sys.executable).parent / "shellcheck", "--shell=bash", "--exclude=SC2016", "-"]
    done = subprocess.run(shellcheck, input=script, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_a_name_with_an_option_in_it_is_no_host() -> None:
    with pytest.raises(UserError, match="is not a host"):
        Host("-oProxyCommand=x")


def test_packages_are_those_of_this_environment(tmp_path: Path) -> None:
    names = [package.name for package in packages.installed()]
    assert {"grpo-core", "grpo-tasks-math"} <= {*names}
    sources = [packages.source_folder(package) for package in packages.installed() if package.name == "grpo-core"]
    assert [source is None or (source / "pyproject.toml").is_file() for source in sources] == [True]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_real_run_is_saved_by_stop_and_goes_on(server: tuple[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "there"
    folder.mkdir()
    (folder / ".venv").symlink_to(sys.prefix)
    own = ["--ssh", server[0], "--folder", str(folder), "--session", "real"]

    assert main(["launch", "ssh", "127.0.0.1", *own, *SMALL, "--max-steps=2000", "--nproc=2"]) == 0
    wait_for(folder / "real" / "log", " 2/2000 ")
    assert main(["launch", "ssh", "127.0.0.1", *own, "--stop"]) == 0
    [run] = find_runs(folder / "real")
    assert read_run(run).state == "interrupted"
    assert main(["launch", "ssh", "127.0.0.1", *own, "--resume"]) == 0
    wait_for(folder / "real" / "log", "resume step")
    assert main(["launch", "ssh", "127.0.0.1", *own, "--stop"]) == 0


@pytest.mark.network
@pytest.mark.timeout(900)
def test_bootstrap_installs_what_is_here(tmp_path: Path) -> None:
    own = ("UV_", "PIP_", "SSL_", "HTTP_PROXY", "HTTPS_PROXY")  # how packages are reached from here
    passed_on = {name: value for name, value in os.environ.items() if name.startswith(own) and name != "UV_PYTHON"}
    try:
        with ssh_server(tmp_path, **passed_on) as command:
            folder = tmp_path / "there"
            uv = subprocess.run(["which", "uv"], capture_output=True, text=True, check=True).stdout.strip()
            (tmp_path / "bin" / "uv").symlink_to(uv)
            words = ["--ssh", command, "--folder", str(folder), "--bootstrap", "--task=math.arithmetic"]
            assert main(["launch", "ssh", "127.0.0.1", *words, "--max-steps=1", "eval.size=8"]) == 0
            wait_for(folder / "run" / "log", "ended with exit code")
            assert "ended with exit code 0" in (folder / "run" / "log").read_text()
    except ServerError as error:
        pytest.skip(str(error))
