from pathlib import Path

import pytest

from grpo_core.engines.servers import scratch as folders


@pytest.fixture(autouse=True)
def scratch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Folders for weights are in the test's own, also where an engine is not closed."""
    monkeypatch.setattr(folders, "SHARED_MEMORY", tmp_path)
