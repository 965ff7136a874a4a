"""What the tests across packages share."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from forked_programs import forked_programs
from wheels import build_wheels


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the checkout."""
    return Path(__file__).parents[1]


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheels of this workspace."""
    return build_wheels(tmp_path_factory.mktemp("built") / "wheels")


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with programs that start in no time; see `forked_programs`."""
    with forked_programs(tmp_path_factory.mktemp("programs")) as folder:
        yield folder
