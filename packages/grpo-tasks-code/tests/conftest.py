"""Settings of this package's tests."""

from collections.abc import Iterator

import pytest

TESTS_PATIENCE_S = 60.0
"""A busy machine makes a test slow, not red: programs are waited for six times as long before they abstain."""


@pytest.fixture(scope="session", autouse=True)
def patient_sandbox() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("grpo_tasks_code.sandbox.arguments.PATIENCE_S", TESTS_PATIENCE_S)
        yield
