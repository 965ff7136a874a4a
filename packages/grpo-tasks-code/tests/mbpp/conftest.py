"""What the tests of MBPP share."""

import os

import pytest


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("MBPP_")]:
        monkeypatch.delenv(name)
