import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from grpo_core.checkpoints import CheckpointStore


@pytest.fixture
def waits_for_no_disk() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture
def store(tmp_path: Path, waits_for_no_disk: None) -> CheckpointStore:
    return CheckpointStore(tmp_path / "run")
