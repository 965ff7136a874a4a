"""What a pipe gets: tables of 120 columns, and help that shows defaults."""

from __future__ import annotations

import pytest

from grpo_core.cli import main as entry

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


@pytest.mark.parametrize("words", [(), ("--help",)])
def test_grpo_alone_prints_its_help_and_succeeds(words: tuple[str, ...], capsys: Capture) -> None:
    assert entry.main(list(words)) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("Usage: grpo ") and "warm-start" in captured.out
    assert captured.err == ""
