"""Real data sets, which are not in the repository."""

import os
from pathlib import Path

import pytest


def shared_data(name: str) -> Path:
    """A file of $GRPO_SHARED_DATA, or of a `shared/data` in or beside a folder above; skips the test without it."""
    folders = [Path(os.environ["GRPO_SHARED_DATA"])] if "GRPO_SHARED_DATA" in os.environ else []
    folders += [parent / "shared" / "data" for parent in Path(__file__).resolve().parents]
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    pytest.skip(f"{name} is not in $GRPO_SHARED_DATA nor in a shared/data folder above the tests")
