"""`tests/golden/run.py` runs the shared cases, in float64 and float32, and says what fails."""

import importlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

GOLDEN = Path(__file__).parent / "golden"
CASES = GOLDEN / "cases" / "algorithms.json"
WARMUP = {"beta": 0.04, "step": 1, "warm": 10}

Main = Callable[[list[str]], int]


@pytest.fixture(scope="module")
def main() -> Iterator[Main]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(GOLDEN)
        yield importlib.import_module("run").main


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_every_case_passes(main: Main, capsys: pytest.CaptureFixture[str], dtype: str) -> None:
    status = main([str(CASES), "--dtype", dtype])
    count = len(orjson.loads(CASES.read_bytes())["cases"])
    assert (status, capsys.readouterr().out) == (0, f"{count} passed, 0 failed\n")


@pytest.mark.parametrize(("op", "inputs", "expected", "said"), [
    ("kl_warmup", WARMUP, {"beta": 0.004}, ""),
    ("kl_warmup", WARMUP, {"beta": 0.005}, "for 0.005"),
    ("kl_warmup", WARMUP, {"gamma": 1}, "gamma is missing"),
    ("no_such_operation", {}, {}, "no operation"),
    ("pass_at_k", {"n": 2, "c": 3, "k": 1}, {"value": 1.0}, "UserError"),
    ("ess", {"log_w": [0.0]}, {"ess": "nan", "ess_frac": 1.0}, "for nan"),
    ("off_policy_mask", {"adv": [], "logp": [], "sampler": [], "mask": [], "delta": 1}, {"keep": [1]}, "length"),
])  # fmt: skip
def test_a_case_that_fails_is_named_with_what_is_wrong(
    main: Main, capsys: pytest.CaptureFixture[str], tmp_path: Path, op: str, inputs: Any, expected: Any, said: str
) -> None:
    case = {"id": "this", "op": op, "inputs": inputs, "expected": expected, "tol": 1e-9, "tags": []}
    (tmp_path / "cases.json").write_bytes(orjson.dumps({"version": 1, "cases": [case]}))
    status = main([str(tmp_path / "cases.json")])
    failures = capsys.readouterr().out.splitlines()[:-1]
    assert (status, len(failures)) == ((1, 1) if said else (0, 0))
    assert not said or (failures[0].startswith("this: ") and said in failures[0])


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_seeded_runs_give_the_weights_of_the_file() -> None:
    done = subprocess.run([sys.executable, str(GOLDEN / "recipes.py")], capture_output=True, text=True)
    if done.returncode == 2:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr
