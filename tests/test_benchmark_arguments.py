"""The command lines of benchmarks/."""

import json
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


BAD = [
    ("growth", ["--steps", "0"], "'0' is not a whole number from 1"),
    ("growth", ["--from", "nowhere.json"], "nowhere.json is not a file"),
    ("growth", ["--from", __file__], "is not a file that --json wrote"),
    ("growth", ["--svg", "nowhere/a.svg"], "is not a file in a folder that exists"),
    ("learning", ["--seeds", "0,,2"], "'' is not a whole number from 1"),
    ("learning", ["--rates", "nan"], "'nan' is not a number above 0"),
    ("learning", ["--algorithms", "ppo2"], "'ppo2' is not a recipe, or trl_ and a recipe"),
    ("limits", ["--device", "tpu"], "invalid choice: 'tpu'"),
    ("limits", ["--hidden", "100", "--heads", "3"], "hidden=100 must be a multiple of 2 x heads=3"),
    ("report", ["9"], "must be at least 50"),
    ("sampler", ["--model", "nowhere"], "nowhere is not a folder"),
    ("sampler_vllm", ["--model", "nowhere", "--vllm", "python"], "nowhere is not a folder"),
    ("scale", ["--published", "--ranks"], "not allowed with argument --published"),
    ("serve", ["--hanging", "1.5"], "'1.5' is not a number from 0 to 1"),
    ("step", ["--group", "1"], "group=1 must be at least 2"),
    ("step", ["--heads", "4", "--kv-heads", "3"], "heads=4 must be a multiple of kv_heads=3"),
    ("verifiers", ["--gsm8k", "nowhere.jsonl"], "nowhere.jsonl is not a file"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments", "message"), BAD)
def test_what_cannot_be_is_one_line(name: str, arguments: list[str], message: str, call: Call) -> None:
    code, out, errors = call(name, *arguments)
    assert (code, out) == (2, [])
    assert message in errors[-1]


@pytest.mark.parametrize("arguments", [[], ["--published"], ["--prompts", "1", "--group", "1"]])
def test_the_table_of_predictions_fits_a_terminal(arguments: list[str], call: Call) -> None:
    code, lines, _ = call("scale", *arguments)
    assert code == 0 and len(lines) > 5 and max(map(len, lines)) <= 80
    code, lines, _ = call("scale", *arguments, "--json")
    assert code == 0 and json.loads("\n".join(lines))["rows"]
