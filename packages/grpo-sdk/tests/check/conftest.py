"""One worker is enough for the completions of a check, and each costs a second to start."""

import pytest


@pytest.fixture(autouse=True)
def one_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grpo_sdk.killable.pool.default_workers", lambda: 1)
