"""A machine with the programs of SLURM, for tests without a cluster, and what commands print as data."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from grpo_sdk.cli.main import main

SBATCH = """#!/bin/sh
printf '%s\\n' "$@" > "$SEEN/arguments"
cat "$1" > "$SEEN/script"
if [ -n "$REFUSES" ]; then echo "$REFUSES" >&2; exit 1; fi
echo Submitted batch job 4711
"""


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Runs a command, which shows no key: its data, or what it says where it has none."""

    def run(*words: str, code: int = 0) -> Any:
        assert main([*words, "--json"]) == code
        printed = capsys.readouterr()
        assert os.environ.get("AWS_SECRET_ACCESS_KEY", "no key") not in printed.out + printed.err
        return json.loads(printed.out) if printed.out else printed.err

    return run


@pytest.fixture
def sbatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that receives what a fake sbatch is given; a file `queue` in it is what squeue prints."""
    pytest.importorskip("submitit", reason="the extra slurm")
    (seen := tmp_path / "seen").mkdir()
    (tmp_path / "bin").mkdir()
    squeue = "#!/bin/sh\ncat $SEEN/queue || exit 1\n"
    for name, text in {"sbatch": SBATCH, "srun": "#!/bin/sh\n", "squeue": squeue}.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("SEEN", str(seen))
    monkeypatch.chdir(tmp_path)
    return seen


@pytest.fixture
def check_shell() -> Callable[[str], None]:
    """A function that shellcheck finds no fault in a script with."""

    def check(script: str) -> None:
        # SC2016 notes that a quoted $ is not expanded, which is what quotes are for here.
        command = [Path(sys.executable).parent / "shellcheck", "--shell=bash", "--exclude=SC2016", "-"]
        done = subprocess.run(command, input=script, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout

    return check
