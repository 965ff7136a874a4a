"""`tests/golden/run.py` runs the shared cases, in float64 and float32, and says what fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import orjson
import pytest

GOLDEN = Path(__file__).parent / "golden"
CASES = GOLDEN / "cases" / "algorithms.json"


def golden(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(GOLDEN / "run.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_every_case_passes(dtype: str) -> None:
    done = golden(str(CASES), "--dtype", dtype)

    count = len(orjson.loads(CASES.read_bytes())["cases"])
    assert done.stdout.splitlines()[-1] == f"{count} passed, 0 failed", done.stdout + done.stderr
    assert done.returncode == 0


def test_a_wrong_number_an_unknown_operation_and_an_impossible_input_fail_and_are_named(tmp_path: Path) -> None:
    cases = [
        {
            "id": "right",
            "op": "kl_warmup",
            "inputs": {"beta": 0.04, "step": 1, "warm": 10},
            "expected": {"beta": 0.004},
        },
        {
            "id": "wrong",
            "op": "kl_warmup",
            "inputs": {"beta": 0.04, "step": 1, "warm": 10},
            "expected": {"beta": 0.005},
        },
        {"id": "unknown", "op": "no_such_operation", "inputs": {}, "expected": {}},
        {"id": "impossible", "op": "pass_at_k", "inputs": {"n": 2, "c": 3, "k": 1}, "expected": {"value": 1.0}},
        {"id": "missing", "op": "kl_warmup", "inputs": {"beta": 0.04, "step": 1, "warm": 10}, "expected": {"gamma": 1}},
    ]
    file = tmp_path / "cases.json"
    file.write_bytes(orjson.dumps({"version": 1, "cases": [{**case, "tol": 1e-9, "tags": []} for case in cases]}))

    done = golden(str(file))

    *failures, last = done.stdout.splitlines()
    assert last == "1 passed, 4 failed"
    assert [line.partition(":")[0] for line in failures] == ["wrong", "unknown", "impossible", "missing"]
    assert done.returncode == 1
