"""What a pipe gets: tables of 120 columns or more, and help that shows defaults."""

import json
from pathlib import Path

import pytest

from grpo_sdk.cli import main as entry

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize(("words", "shown"), [
    ("run", ("math.arithmetic]", "[default: training_runs]", "[default: 0]")),
    ("eval", ("[default: 512]", "[default: test]", "[default: all]")),
    ("resume", ("[default: latest]",)),
    ("warm-start", ("[default: 1000", "[default: constant]")),
    ("publish", ("[default: latest]", "[default: merged]")),
    ("rollouts", ("[default: 10",)),
])  # fmt: skip
def test_help_shows_defaults(words: str, shown: tuple[str, ...], capsys: Capture) -> None:
    assert entry.main([words, "-h"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert all(default in text for default in shown), text
    assert "[default: null]" not in text


@pytest.mark.parametrize("words", ["", "--help"])
def test_grpo_alone_prints_its_help_and_succeeds(words: str, capsys: Capture) -> None:
    assert entry.main(words.split()) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("Usage: grpo ") and "warm-start" in captured.out
    assert captured.err == ""


@pytest.mark.parametrize("words", ["new mine", "export verl math.arithmetic mine --size 4 --test-size 4"])
def test_what_writes_a_folder_says_it_as_json_too(words: str, capsys: Capture) -> None:
    assert entry.main([*words.split(), "--json"]) == 0
    written = json.loads(capsys.readouterr().out)
    assert written["folder"] == "mine"
    assert {*written["files"]} == {str(file.relative_to("mine")) for file in Path("mine").rglob("*") if file.is_file()}
