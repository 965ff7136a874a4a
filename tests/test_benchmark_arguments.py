"""The command lines of benchmarks/."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchmark_scripts import SCRIPTS, load_script


def call(name: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    script = load_script(name)
    monkeypatch.setattr("sys.argv", [f"{name}.py", *arguments])
    monkeypatch.setenv("COLUMNS", "80")
    try:
        script.main()
    except SystemExit as end:
        assert isinstance(end.code, int)
        return end.code
    return 0


@pytest.mark.parametrize("name", SCRIPTS)
def test_help_fits_a_terminal(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(name, ["--help"], monkeypatch) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 8
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
def test_what_cannot_be_is_one_line(
    name: str, arguments: list[str], message: str, monkeypatch: Any, capsys: Any, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(name, arguments, monkeypatch) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert message in shown.err.splitlines()[-1]


@pytest.mark.parametrize("arguments", [[], ["--published"], ["--prompts", "1", "--group", "1"]])
def test_the_table_of_predictions_fits_a_terminal(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("scale", arguments, monkeypatch) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 5 and max(map(len, lines)) <= 80
    assert call("scale", [*arguments, "--json"], monkeypatch) == 0
    assert json.loads(capsys.readouterr().out)["rows"]
