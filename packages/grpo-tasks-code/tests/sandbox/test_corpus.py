"""Attacks, reward hacks and ordinary programs, at both levels; `sandbox_corpus/run.py` says how a leak is seen."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from grpo_tasks_code.sandbox import Sandbox, SandboxUnavailableError

CORPUS = Path(__file__).parents[1] / "sandbox_corpus"
TIMEOUT_S = 280


def corpus(kind: str, level: str) -> tuple[int, list[list[str]]]:
    """How many there are, and what leaked."""
    done = subprocess.run(
        [sys.executable, "-W", "error", CORPUS / "run.py", kind, level],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    return told["count"], told["leaks"]


@pytest.mark.parametrize("level", ["L3", "L2"])
@pytest.mark.parametrize(("kind", "least"), [("attacks", 200), ("hacks", 85), ("tested", 90), ("programs", 50)])
def test_nothing_leaks_and_everything_honest_runs(kind: str, least: int, level: str) -> None:
    try:
        with Sandbox(level) as sandbox:
            assert sandbox.level.name == level
    except SandboxUnavailableError as error:
        pytest.skip(str(error))
    count, leaks = corpus(kind, level)
    assert not leaks, "\n".join(f"{name}: {what}" for name, what in leaks)
    assert count >= least


def test_the_size_of_the_corpus() -> None:
    sizes = {path.stem: len(tomllib.loads(path.read_text(encoding="utf-8"))) for path in CORPUS.glob("*.toml")}
    assert sum(size for name, size in sizes.items() if name.startswith(("attacks", "hacks"))) >= 300
    assert sizes["programs"] >= 55


WOULD_LEAK = (
    *("read_secret", "write_to_bait", "change_mode_of_secret", "list_root", "fork", "send_datagram"),
    *("connect", "mount", "trace_parent", "file_in_memory", "send_to_unix_socket_from_a_pair"),
)

BROKEN = """
import runpy, shutil, sys
from pathlib import Path
import grpo_tasks_code
from grpo_tasks_code.sandbox.host import levels, process

copy = Path(sys.argv[1], "grpo_tasks_code")
shutil.copytree(Path(grpo_tasks_code.__file__).parent, copy)
confinement = copy / "sandbox" / "inside" / "confinement.py"
text = confinement.read_text()
for call in ("self.ruleset.enforce()", "self.filter.install(os.getpid())"):
    assert text.count(call) == 1
    text = text.replace(call, "pass")
confinement.write_text(text)
process._PACKAGE = copy
levels.withstands = lambda server: None
sys.argv[:] = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs the corpus on a sandbox without its system-call filter, its rules for files and its own self-attack."""


def test_a_sandbox_that_leaks_is_noticed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", BROKEN, tmp_path, CORPUS / "run.py", "attacks", "L2", *WOULD_LEAK]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["count"] == len(WOULD_LEAK)
    assert {name for name, _ in told["leaks"]} >= set(WOULD_LEAK)
