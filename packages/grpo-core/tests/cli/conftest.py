"""Tables have wide lines here, so that a row is one line; test_tables.py is about what a pipe gets by itself."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def wide_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
