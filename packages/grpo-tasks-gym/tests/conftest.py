"""What the tests of this package share."""

import pytest


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers of this machine are asked directly."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
