"""`grpo launch ssh` through an ssh that runs its command here, in a home folder beside itself."""

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import eventually

from grpo_sdk.cli.main import main

HOSTILE = "it's $(touch hacked) `touch hacked`; touch hacked"

PROGRAMS = {
    "ssh": """#!/bin/bash
unset TMUX # of a terminal that runs the tests
export HOME="${0%/*}/home" TMUX_TMPDIR="${0%/*}" PATH="${0%/*}:/usr/local/bin:/usr/bin:/bin"
cd "$HOME" && exec bash -c "${@: -1}"
""",
    "grpo": """#!/bin/bash
case "$*" in *wrong*--dry-run) echo "no such task" >&2; exit 2;; *--dry-run) exit;; esac
printf '%s\\n' "$@" > "$HOME/words"
mkdir -p "$PWD/sums/run_1"
trap 'echo saved; exit 130' INT
echo begun
for _ in $(seq 600); do sleep 0.1; done
""",
    "tmux": """#!/bin/bash
set -m
case $1 in
  new-session) "${@:5}" > "$0.out" 2>&1 & echo $! > "$0.pid";;
  has-session) kill -0 "$(cat "$0.pid")";;
  *) kill -INT -- "-$(cat "$0.pid")";;
esac
""",
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name, text in PROGRAMS.items():
        if name != "tmux" or shutil.which(name) is None:
            (tmp_path / name).write_text(text)
            (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "home").mkdir()
    yield tmp_path / "home"
    subprocess.run(["ssh", "host", "tmux kill-server"], capture_output=True)


def wait_for(path: Path, text: str) -> None:
    assert eventually(lambda: path.is_file() and path.read_text().endswith(text), 60)


def test_the_printed_commands_stop_and_resume_a_run(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start = ["launch", "ssh", "host", "--session=sums", "--folder", HOSTILE, "--task", HOSTILE, "--nproc", "2"]
    assert main(start) == 0
    log = home / HOSTILE / "sums" / "log"
    wait_for(log, "begun\n")
    run = ["run", "--task", HOSTILE, "--nproc", "2"]
    assert (home / "words").read_text().splitlines() == [*run, "--output-dir", "sums"]
    assert main(start) == 1  # the session is there already
    printed = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    commands = {name: command for name, command in printed if name != "started"}
    assert [*commands] == ["log", "stop", "resume", "pull"]
    assert shlex.split(commands["pull"]) == ["rsync", "-as", f"host:{HOSTILE}/sums/", "sums"]

    subprocess.run(["bash", "-c", commands["stop"]], check=True)
    wait_for(log, "saved\nended with exit code 130\n")
    resume = ["bash", "-c", commands["resume"]]
    assert eventually(lambda: not subprocess.run(resume, capture_output=True).returncode)  # the session is about to end
    wait_for(home / "words", "resume\nsums/run_1\n--nproc\n2\n")
    assert not [*home.parent.rglob("hacked")]


def test_what_the_host_refuses_is_not_started(home: Path) -> None:
    assert main(["launch", "ssh", "host", "--task=wrong"]) == 1
    assert not [*home.rglob("log")]
