"""Ten thousand mixed programs and completions leave nothing behind: `pytest -m slow tests/test_soak.py`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

COUNT = int(os.environ.get("SOAK_COUNT", "10000"))
MOST_GROWTH = 1.05
"""Of resident memory, over what it was after the first tenth."""


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("kind", ["programs", "completions"])
def test_a_soak_leaves_nothing_behind(kind: str) -> None:
    script = Path(__file__).with_name("soak.py")
    done = subprocess.run([sys.executable, script, kind, str(COUNT)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    first, early, late, closed = (report[name] for name in ("first", "early", "late", "closed"))
    assert sum(report["outcomes"].values()) == COUNT
    for held in ("descriptors", "processes", "mounts"):
        assert late[held] == early[held], (held, report)
        assert closed[held] <= first[held] + (held == "descriptors"), (held, report)
    assert late["rss_mib"] <= MOST_GROWTH * early["rss_mib"], report
    # Our tasks call what takes too long, or is too long, wrong. A program that a busy machine starves abstains.
    abstained = sum(
        report["outcomes"].get(name, 0) for name in ("timeout", "reward", "infrastructure", "sandbox_error")
    )
    if kind == "programs":
        abstained -= report["outcomes"].get("timeout", 0)
    assert abstained <= (COUNT / 100 if kind == "programs" else 0), report
