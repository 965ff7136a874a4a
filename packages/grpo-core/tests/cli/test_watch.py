"""`grpo watch` as a command; what it shows: display/test_watch.py."""

import sys
from pathlib import Path
from typing import Any

import pytest
from growing_run import GrowingRun

from grpo_core.display import watch
from grpo_sdk.cli.main import main


def test_the_newest_run_of_a_folder_is_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[Path, float]] = []

    class App:
        return_code = 0

        def __init__(self, live: Any, every_s: float) -> None:
            made.append((live.path, every_s))

        def run(self) -> None:
            """Show nothing."""

    for day in (20, 21):
        GrowingRun(tmp_path / f"run_2026-11-{day}_10-00-00")
    monkeypatch.setattr("grpo_core.cli.watch.is_terminal", lambda: True)
    monkeypatch.setattr(watch, "WatchApp", App)
    assert main(["watch", str(tmp_path), "--every", "0.2"]) == 0
    assert made == [(tmp_path / "run_2026-11-21_10-00-00", 0.2)]


def test_without_textual_it_says_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = GrowingRun(tmp_path / "run_1")
    monkeypatch.setitem(sys.modules, "textual", None)
    monkeypatch.setitem(sys.modules, "textual.app", None)
    monkeypatch.delitem(sys.modules, "grpo_core.display.watch", raising=False)
    monkeypatch.setattr("grpo_core.cli.watch.is_terminal", lambda: True)
    assert main(["watch", str(run.path)]) == 2
    said = "error: this needs the package textual, which is not installed: pip install 'grpo-core[watch]'"
    assert capsys.readouterr().err.startswith(said)
