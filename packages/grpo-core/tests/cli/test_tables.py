"""What a pipe gets: tables of 120 columns or more, and help that shows defaults."""

import json
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from grpo_core.cli import main as entry

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


def commands_of(command: click.Command, *words: str) -> Iterator[tuple[str, ...]]:
    """Words of a command and of every one below it, those of installed plugins included."""
    yield words
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from commands_of(below, *words, name)


@pytest.mark.parametrize("columns", [80, 40])
def test_no_line_of_a_help_is_wider_than_the_terminal(
    columns: int, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    every = [*commands_of(entry.grpo)]
    assert ("warm-start",) in every and ("runs", "compare") in every
    for words in every:
        assert entry.main([*words, "--help"]) == 0
        out = capsys.readouterr().out
        assert out.startswith(f"Usage: {' '.join(('grpo', *words))} ")
        wide = [line for line in out.splitlines() if len(line) > columns]
        assert not [line for line in wide if " " in line.strip(" \\")], wide  # one word, as a path, is never broken


def test_a_folded_example_is_one_command_for_a_shell(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert entry.main(["resume", "--help"]) == 0
    _, _, examples = capsys.readouterr().out.partition("Examples:\n")
    joined = [" ".join(line.split()) for line in examples.replace("\\\n", "").splitlines()]
    assert joined[-1].endswith("run_2026-11-21_10-02-11 --from-step final --additional-steps 100")
    assert all(line.startswith("grpo resume ") for line in joined) and len(joined) == 2


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


@pytest.mark.parametrize("words", ["tasks", "models", "profiles", "run --show-config"])
def test_a_table_in_a_pipe_fits_its_columns_and_breaks_few_words(
    words: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shown() -> list[str]:
        assert entry.main(words.split()) == 0
        lines = capsys.readouterr().out.splitlines()
        return [line for line in lines if not line.startswith(("this ", "platform:", "grpo tasks show"))]

    whole = {*" ".join(shown()).split()}
    monkeypatch.delenv("COLUMNS")
    assert 60 < max(map(len, shown())) <= 120
    for columns in (80, 40):
        monkeypatch.setenv("COLUMNS", str(columns))
        narrow = shown()
        assert max(map(len, narrow)) <= columns
        found = {*" ".join(narrow).split()}
        assert len(found - whole) < len(found) / 5, sorted(found - whole)
