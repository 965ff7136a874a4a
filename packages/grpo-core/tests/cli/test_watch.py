"""`grpo watch` as a command: in a real terminal (tmux), and where there is none."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from growing_run import GrowingRun
from terminals import Terminal

from grpo_core.cli import main as entry
from grpo_core.tracking import presence


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_terminal_shows_the_newest_run_and_is_left_clean(tmp_path: Path) -> None:
    GrowingRun(tmp_path / "training_runs" / "run_2026-11-20_10-00-00")
    run = GrowingRun(tmp_path / "training_runs" / "run_2026-11-21_10-00-00")
    presence.announce(run.path)
    run.step(1)
    run.group(1, 0, "\x1b[2Jhostile")
    program = f"NO_COLOR=1 LANG=C.UTF-8 {sys.executable} -m grpo_core"
    screen = Terminal(tmp_path, f"{program} watch --every 0.2; echo exit code $?", 40, 15)
    try:
        screen.until("step 1/40")
        text = screen.until("Quit")
        assert "run_2026-11-21" in text and "running" in text
        assert not re.search(r"\x1b\[[0-9;]*\b(3[0-8]|4[0-8]|9[0-7])\b", screen.codes())  # colours
        run.step(2)
        screen.until("step 2/40")
        screen.press("2")
        screen.until("row r1")
        screen.tmux("resize-window", "-x", "100", "-y", "30")
        screen.until("\\x1b[2Jhostile")
        screen.press("q")
        assert "Quit" not in screen.until("exit code 0")
    finally:
        screen.close()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "no run in training_runs yet. Start one with grpo run"),
        (("nowhere",), "no run nowhere: there is no such folder."),
        (("run_1",), "grpo watch needs a terminal. In a pipe or a file: grpo runs show run_1 --json"),
        ((".",), "grpo runs show run_1 --json"),
        (("run_1", "--every", "0"), "0<x"),
    ],
)
def test_a_mistake_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    GrowingRun(tmp_path / "run_1")
    assert entry.main(["watch", *words]) == 2
    assert said in capsys.readouterr().err


def test_without_textual_it_says_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    GrowingRun(tmp_path / "run_1")
    monkeypatch.setitem(sys.modules, "textual", None)
    monkeypatch.setitem(sys.modules, "textual.app", None)
    monkeypatch.delitem(sys.modules, "grpo_core.display.watch", raising=False)
    monkeypatch.setattr("grpo_core.cli.watch.is_terminal", lambda: True)
    assert entry.main(["watch", "run_1"]) == 2
    assert capsys.readouterr().err == "error: grpo watch needs textual: pip install 'grpo-core[watch]'\n"
