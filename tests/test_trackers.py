"""Trackers of which each needs an environment of its own hold each step of a killed run once, by their own API."""

import json
import signal
import subprocess
from pathlib import Path

import pytest
from wheels import ROOT, call, new_environment

SUPPORT = ROOT / "packages" / "grpo-core" / "tests" / "support"

RUN, BRANCH = list(range(1, 9)), list(range(1, 11))


@pytest.mark.network
@pytest.mark.peers
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", ["mlflow", "trackio", "aim", "comet_ml", "clearml"])
def test_a_killed_and_branched_run_has_each_step_once(name: str, wheels: Path, tmp_path: Path) -> None:
    pins = ("--constraint", str(wheels / "constraints.txt"))
    python = new_environment(tmp_path, wheels, *pins, f"grpo-core[{name}]", "grpo-tasks-math")
    assert read_back(name, python, tmp_path) == sorted([RUN, BRANCH])


def read_back(name: str, python: Path, folder: Path) -> list[list[int]]:
    """The steps of the runs that a tracker has after a kill at step 6, a resume at 4 and one --from-step 2."""
    variables = {
        "HOME": str(folder), "TRACKIO_DIR": str(folder / "trackio"), "COMET_START_ONLINE": "0",
        "CLEARML_OFFLINE_MODE": "1", "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db",
    }  # fmt: skip

    def do(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return call(str(python), *words, cwd=folder, check=check, **variables)

    (folder / "run").mkdir()
    for phase in ("1-6 kill", "5-8", "3-10 branch"):
        done = do(str(SUPPORT / "resumed_run.py"), name, "run", *phase.split(), check="kill" not in phase)
        assert done.returncode == (-signal.SIGKILL if "kill" in phase else 0), done.stderr
    if name == "aim":
        call(str(python.with_name("aim")), "storage", "reindex", "--yes", cwd=folder, **variables)
    found = json.loads(do(str(ROOT / "tests" / "programs" / "read_tracker.py"), name, "run").stdout.splitlines()[-1])
    return sorted(steps for _, steps in found)
