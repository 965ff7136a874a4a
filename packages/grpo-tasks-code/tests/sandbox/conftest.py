"""The levels of this machine, and the sandbox of each, which the tests of a file share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from grpo_tasks_code.sandbox import Sandbox, SandboxUnavailableError


@pytest.fixture(scope="module", params=["L3", "L2"])
def level(request: pytest.FixtureRequest) -> str:
    try:
        with Sandbox(request.param) as sandbox:
            assert sandbox.level.name == request.param
    except SandboxUnavailableError as error:
        pytest.skip(str(error))
    return str(request.param)


@pytest.fixture(scope="module")
def sandbox(level: str) -> Iterator[Sandbox]:
    with Sandbox(level, workers=2) as sandbox:
        yield sandbox
