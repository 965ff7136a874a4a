"""Attacks, reward hacks and ordinary programs, at both levels; `sandbox_corpus/run.py` says how a leak is seen."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CORPUS = Path(__file__).parents[1] / "sandbox_corpus"
LEAKING = Path(__file__).parent / "programs" / "leaking_sandbox.py"


def told(*command: str | Path) -> Any:
    """How many entries there are, and what leaked."""
    command = (sys.executable, "-W", "error", *command)
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(("kind", "least"), [("attacks", 200), ("hacks", 100), ("tested", 130), ("programs", 50)])
def test_nothing_leaks_and_everything_honest_runs(kind: str, least: int, level: str) -> None:
    found = told(CORPUS / "run.py", kind, level)
    assert not found["leaks"], "\n".join(f"{name}: {what}" for name, what in found["leaks"])
    assert found["count"] >= least


WOULD_LEAK = {
    *("read_secret", "write_to_bait", "change_mode_of_secret", "list_root", "fork", "send_datagram"),
    *("connect", "mount", "trace_parent", "file_in_memory", "send_to_unix_socket_from_a_pair"),
}


def test_a_sandbox_that_leaks_is_noticed(tmp_path: Path) -> None:
    found = told(LEAKING, tmp_path, CORPUS / "run.py", "attacks", "L2", *WOULD_LEAK)
    assert found["count"] == len(WOULD_LEAK)
    assert {name for name, _ in found["leaks"]} >= WOULD_LEAK
