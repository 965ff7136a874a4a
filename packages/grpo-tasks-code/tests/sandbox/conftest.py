"""The levels of this machine, and the sandbox of each, which the tests of a file share."""

from collections.abc import Iterator
from functools import cache

import pytest

from grpo_tasks_code.sandbox import Sandbox, SandboxUnavailableError


@cache
def why_not(level: str) -> str:
    """Why this machine does not have a level; asked once, since a sandbox attacks itself before it is used."""
    try:
        with Sandbox(level) as sandbox:
            assert sandbox.level.name == level
    except SandboxUnavailableError as error:
        return str(error)
    return ""


@pytest.fixture(scope="module", params=["L3", "L2"])
def level(request: pytest.FixtureRequest) -> str:
    if why := why_not(request.param):
        pytest.skip(why)
    return str(request.param)


@pytest.fixture(scope="module")
def sandbox(level: str) -> Iterator[Sandbox]:
    with Sandbox(level, workers=2) as sandbox:
        yield sandbox
