"""The command lines of benchmarks/."""

from collections.abc import Callable
from pathlib import Path

import pytest
from benchmark_scripts import SCRIPTS, load_script

Call = Callable[..., tuple[object, list[str], list[str]]]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Call:
    """Runs a script in an empty folder, in a terminal of 80 columns: its exit code, and lines of stdout and stderr."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)

    def run(name: str, *arguments: str) -> tuple[object, list[str], list[str]]:
        script = load_script(name)
        monkeypatch.setattr("sys.argv", [f"{name}.py", *arguments])
        code: object = 0
        try:
            script.main()
        except SystemExit as end:
            code = end.code
        printed = capsys.readouterr()
        return code, printed.out.splitlines(), printed.err.splitlines()

    return run


@pytest.mark.parametrize("name", SCRIPTS)
def test_help_fits_a_terminal(name: str, call: Call) -> None:
    code, lines, _ = call(name, "--help")
    assert code == 0 and len(lines) > 8
    assert [line for line in lines if len(line) > 80] == []
