"""What the tests across packages share."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from forked_programs import forked_programs
from vllm_environment import python_with_vllm
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


@pytest.fixture
def few_rows(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Has the checks of a task load a number of rows, in one worker, and look at few of their positions."""

    def limit(loaded: int) -> None:
        most = {"subject.LOADED_ROWS": loaded, "subject.MAX_COUNTED": loaded, "checks.rows.SPLIT_ROWS": 50}
        for name, number in {**most, "checks.processes.POSITIONS": 20_000}.items():
            monkeypatch.setattr(f"grpo_sdk.check.{name}", number)
        monkeypatch.setattr("grpo_sdk.killable.pool.default_workers", lambda: 1)

    return limit


@pytest.fixture(scope="session")
def vllm_python(tmp_path_factory: pytest.TempPathFactory, wheels: Path) -> Path:
    """The Python of an environment with vLLM."""
    return python_with_vllm(tmp_path_factory.mktemp("vllm"), wheels)
