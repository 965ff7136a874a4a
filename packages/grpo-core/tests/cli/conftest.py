"""Every test runs in an empty folder, without this machine's settings, and with lines wide enough for a row."""

import os
from pathlib import Path

import pytest

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
