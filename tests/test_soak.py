"""Ten thousand mixed programs leave nothing behind: `pytest -m slow tests/test_soak.py`."""

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
def test_a_soak_leaves_nothing_behind() -> None:
    script = Path(__file__).with_name("soak.py")
    done = subprocess.run([sys.executable, script, str(COUNT)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    first, early, late, closed = (report[name] for name in ("first", "early", "late", "closed"))
    assert sum(report["outcomes"].values()) == COUNT
    for held in ("descriptors", "processes", "mounts"):
        assert late[held] == early[held], (held, report)
        assert closed[held] <= first[held] + (held == "descriptors"), (held, report)
    assert late["rss_mib"] <= MOST_GROWTH * early["rss_mib"], report
    # A program that a busy machine starves abstains.
    assert report["outcomes"].get("sandbox_error", 0) <= COUNT / 100, report
