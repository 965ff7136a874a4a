"""Tasks of other libraries, from their released packages, each in an environment of its own."""

import json
import os
from pathlib import Path

import pytest
from wheels import ROOT, call, new_environment, with_torch_of_here

GYM_TESTS = ROOT / "packages" / "grpo-tasks-gym" / "tests"

SPECS = {
    "inspect": (f"inspect.task?file={GYM_TESTS}/inspect/evals.py&name=moods&split_by=none", "r1", "yes"),
    "verifiers": ("verifiers.adding_numbers?split_by=none", "train-4", "5"),
}
"""Library -> a task, the id of one of its rows, and what earns the maximum there."""


@pytest.mark.network
@pytest.mark.peers
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("library", SPECS)
def test_tasks_of_a_released_library_are_read_checked_and_scored(library: str, wheels: Path, tmp_path: Path) -> None:
    spec, row, good = SPECS[library]
    wanted = (f"grpo-tasks-gym[{library}]", "grpo-core", "pytest", "pytest-timeout", "pytest-xdist", "hypothesis")
    python = new_environment(tmp_path, wheels, *with_torch_of_here(tmp_path), *wanted)
    here = {"PYTHONPATH": str(GYM_TESTS / "verifiers"), "GRPO_CACHE_DIR": str(tmp_path / "cache")}

    def grpo(*arguments: str, check: bool = True) -> str:
        return call(str(python.with_name("grpo")), *arguments, cwd=tmp_path, check=check, **here).stdout

    assert "   solved   " in grpo("sample", spec, "-n", "1")
    assert "FAILED" not in grpo("check", spec, "-k", "gold,determinism,rows")
    completions = tmp_path / "completions.jsonl"
    texts = [good, "bad", "hang", "raise", "kill", "none"]
    completions.write_text("".join(json.dumps({"row": row, "completion": text}) + "\n" for text in texts))
    scored = grpo("score", spec, "--file", str(completions), "--json", "--timeout-s", "4", check=False)
    scores = [json.loads(line) for line in scored.splitlines()]
    assert [score["solved"] for score in scores] == [True] + [False] * 5
    assert [score["value"] is None for score in scores] == [False] * 2 + [True] * 4

    options = ("-q", "-n", "0", "-p", "no:cacheprovider", "--confcutdir", str(GYM_TESTS), "--rootdir", str(ROOT))
    options += ("-m", "peers or not peers", "-p", "no:unraisableexception")  # which inspect-ai's own streams meet
    tests = call(str(python), "-m", "pytest", *options, str(GYM_TESTS / library), cwd=ROOT, **here)
    assert " passed" in tests.stdout and " 0 passed" not in tests.stdout, tests.stdout
    assert not os.path.exists(tmp_path / "logs"), "inspect-ai writes no logs"
