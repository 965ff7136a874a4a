"""The tests notice bugs: `pytest -m slow tests/test_mutations.py` makes each of mutations.toml and runs its tests."""

import ast
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from script_modules import module_of

mutations = module_of(Path(__file__).with_name("mutations.py"))
MUTATIONS = mutations.MUTATIONS


def test_two_bugs_in_each_of_twenty_rooms() -> None:
    assert list(Counter(each.room for each in MUTATIONS).values()) == [2] * 20
    assert len({str(each) for each in MUTATIONS}) == 40


@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_a_line_of_the_table_is_in_its_file_once(mutation: Any, root: Path) -> None:
    source = (root / mutation.file).read_text(encoding="utf-8")
    broken = mutation.applied(source)
    assert broken is not None, f"{mutation.file} has changed: give its line anew in tests/mutations.toml"
    assert ast.dump(ast.parse(broken)) != ast.dump(ast.parse(source))  # and it is no error of syntax
    assert (root / mutation.tests).exists()


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("room", dict.fromkeys(each.room for each in MUTATIONS))
def test_every_bug_is_caught(room: str) -> None:
    assert mutations.main(["--only", f"{room}:"]) == 0


PACKAGE = "packages/small/src/small/__init__.py"

FILES = {
    PACKAGE: "DOUBLED = 4\nUNUSED = 1\n",
    "packages/small/tests/test_small.py": (
        "import subprocess, sys\n\ndef test_in_a_process():\n"
        '    subprocess.run([sys.executable, "-c", "import small; assert small.DOUBLED == 4"], check=True)\n'
    ),
    "packages/small/tests/test_red.py": "def test_that_fails_anyhow():\n    assert False\n",
    "pytest.ini": "[pytest]\n",
}
"""A checkout in place of ours, whose files are not committed."""


def test_what_becomes_of_a_bug(tmp_path: Path) -> None:
    for path, text in FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    table = (
        ("in a process that a test starts", "DOUBLED = 4", "DOUBLED = 5", "test_small.py"),
        ("that nobody sees", "UNUSED = 1", "UNUSED = 2", "test_small.py"),
        ("in a line that is gone", "TRIPLED = 6", "TRIPLED = 7", "test_small.py"),
        ("where the tests fail without it", "UNUSED = 1", "UNUSED = 2", "test_red.py"),
    )
    bugs = [
        mutations.Mutation("small", name, PACKAGE, f"packages/small/tests/{test}", line, broken)
        for name, line, broken, test in table
    ]
    said: list[str] = []
    seen, missed, gone, red = mutations.run_all(tmp_path, bugs, said.append)
    assert seen.caught_by.endswith("::test_in_a_process")
    assert not missed.caught_by and not gone.caught_by and not red.caught_by
    assert "no longer applies" in gone.problem and "without the bug" in red.problem
    assert "that nobody sees … NOT CAUGHT" in "".join(said)
    assert (tmp_path / PACKAGE).read_text() == FILES[PACKAGE]  # only the copy was changed


def test_a_name_that_no_bug_has_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        mutations.main(["--only", "reporrt"])
    assert "losses, baselines" in capsys.readouterr().err
