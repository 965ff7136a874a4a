"""What a pipe gets: tables of 120 columns or more, and help that shows defaults."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from terminals import Terminal

from grpo_core.cli import main as entry
from grpo_core.display.text import fitted, print_out, table

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize("words", [("tasks",), ("models",), ("profiles",), ("run", "--show-config")])
def test_a_table_in_a_pipe_has_at_most_120_columns(
    words: tuple[str, ...], capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS")
    assert entry.main(list(words)) == 0
    tables = [line for line in capsys.readouterr().out.splitlines() if not line.startswith(("this ", "platform:"))]
    assert 60 < max(map(len, tables)) <= 120


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("run",), ("math.arithmetic]", "[default: training_runs]", "[default: 0]")),
        (("eval",), ("[default: 512]", "[default: test]", "[default: all]")),
        (("resume",), ("[default: latest]",)),
        (("warm-start",), ("[default: 1000", "[default: constant]")),
        (("publish",), ("[default: latest]", "[default: merged]")),
        (("rollouts",), ("[default: 10",)),
    ],
)
def test_help_shows_defaults(words: tuple[str, ...], shown: tuple[str, ...], capsys: Capture) -> None:
    assert entry.main([*words, "--help"]) == 0
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
        wide = [line for line in capsys.readouterr().out.splitlines() if len(line) > columns]
        assert not [line for line in wide if " " in line.strip(" \\")], wide  # one word, as a path, is never broken


def test_a_folded_example_is_one_command_for_a_shell(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert entry.main(["resume", "--help"]) == 0
    _, _, examples = capsys.readouterr().out.partition("Examples:\n")
    joined = [" ".join(line.split()) for line in examples.replace("\\\n", "").splitlines()]
    assert joined[-1].endswith("run_2026-11-21_10-02-11 --from-step final --additional-steps 100")
    assert all(line.startswith("grpo resume ") for line in joined) and len(joined) == 2


@pytest.mark.parametrize("words", [(), ("--help",)])
def test_grpo_alone_prints_its_help_and_succeeds(words: tuple[str, ...], capsys: Capture) -> None:
    assert entry.main(list(words)) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("Usage: grpo ") and "warm-start" in captured.out
    assert captured.err == ""


def test_a_narrow_terminal_shows_rows_as_lines_and_wraps_the_help(tmp_path: Path) -> None:
    program = f"{sys.executable} -m grpo_core"
    terminal = Terminal(tmp_path, f"{program} models | head -1; {program} models; {program} models --help", 40, 200)
    try:
        lines = terminal.until("Show this message").splitlines()
    finally:
        terminal.close()
    shown = [line.rstrip() for line in lines]
    assert shown[0].startswith("model ")  # the pipe has a table
    assert "tiny" in shown and shown[shown.index("tiny") + 1].startswith("  description")
    first = next(i for i, line in enumerate(shown) if line.startswith("Usage:"))
    assert any("--json" in line for line in shown[first:])
    # Words that click would have put behind the 40th column begin a line of their own.
    assert not any(line[:1].isalnum() for line in shown[first + 2 :] if "sage" not in line and line != "Options:")


@pytest.mark.parametrize("words", [("new", "mine"), ("export", "verl", "math.arithmetic", "mine")])
def test_what_writes_a_folder_says_it_as_json_too(
    words: tuple[str, ...], capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert entry.main([*words, "--json", *(["--size", "4", "--test-size", "4"] if words[0] == "export" else [])]) == 0
    written = json.loads(capsys.readouterr().out)
    assert written["folder"] == "mine"
    assert {*written["files"]} == {str(file.relative_to("mine")) for file in Path("mine").rglob("*") if file.is_file()}


@pytest.mark.parametrize("words", [("tasks",), ("models",), ("profiles",), ("run", "--show-config")])
@pytest.mark.parametrize("columns", [80, 40])
def test_columns_set_for_a_pipe_hold_and_break_few_words(
    columns: int, words: tuple[str, ...], capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    assert entry.main(list(words)) == 0
    whole = {*capsys.readouterr().out.split()}
    monkeypatch.setenv("COLUMNS", str(columns))
    assert entry.main(list(words)) == 0
    lines = capsys.readouterr().out.splitlines()
    tables = [line for line in lines if not line.startswith(("this ", "platform:", "grpo tasks show"))]
    assert max(map(len, tables)) <= columns
    shown = {*" ".join(tables).split()}
    assert len(shown - whole) < len(shown) / 5, sorted(shown - whole)


def test_rows_become_lines_where_columns_would_break_words() -> None:
    from io import StringIO

    from rich.console import Console

    listing = table("run", "solved: initial → latest", "written")
    listing.add_row("run_2026-11-21_10-02-11", "0.48 → 0.93 [0.91, 0.95]", "3 min ago")
    stream = StringIO()
    console = Console(file=stream, width=40)
    console.print(fitted(listing, console, 40))
    assert [line.rstrip() for line in stream.getvalue().splitlines()] == [
        "run_2026-11-21_10-02-11",
        "  solved: initial → latest",
        "    0.48 → 0.93 [0.91, 0.95]",
        "  written   3 min ago",
    ]


def test_a_table_in_a_pipe_is_wider_rather_than_break_names(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS")
    name = "games.connect_four?style=short&canonical=true&openings=10&opponent=any_perfect"
    heads = ("task", "solved", "95% interval", "mean reward", "valid", "length", "truncated", "rows", "split")
    listing = table(*heads)
    listing.add_row(name, "0.55", "[0.43, 0.66]", "0.28", "1.00", "16.0", "0.00", "64", "test at temperature 1")
    print_out(listing)
    head, row = capsys.readouterr().out.splitlines()
    assert head.split()[0] == "task" and row.startswith(f"{name}   0.55   ")
    assert row.index("[0.43, 0.66]") == head.index("95% interval")
