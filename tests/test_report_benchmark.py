"""The arguments of benchmarks/report.py, which need no browser."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "report.py"


@pytest.mark.parametrize(
    ("argument", "status", "message"),
    [("--help", 0, "at least 50"), ("many", 2, "invalid int value: 'many'"), ("0", 2, "must be at least 50")],
)
def test_its_arguments(argument: str, status: int, message: str) -> None:
    done = subprocess.run([sys.executable, SCRIPT, argument], capture_output=True, text=True)
    assert done.returncode == status
    assert message in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
