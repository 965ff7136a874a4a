"""Every test runs in an empty folder, without this machine's settings, and with lines wide enough for a row."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from grpo_sdk.cli import main as entry
from grpo_sdk.display.libraries import BAR_SWITCHES


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("GRPO_") and name != "GRPO_CACHE_DIR"]:
        monkeypatch.delenv(name)
    for name in BAR_SWITCHES:  # set, and so restored: the commands set them where they are not
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("COLUMNS", "1000")
    return tmp_path


@pytest.fixture
def grpo(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command, which never sends an escape: what it prints on stdout, or on stderr where it fails."""

    def run(*words: str, code: int = 0) -> str:
        assert entry.main(words) == code
        printed = capsys.readouterr()
        assert "\x1b" not in printed.out + printed.err
        return printed.err if code else printed.out

    return run
