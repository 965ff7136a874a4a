import os
from pathlib import Path

import pytest

from grpo_core.checkpoints import CheckpointStore


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CheckpointStore:
    """A store that waits for no disk."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    return CheckpointStore(tmp_path / "run")
