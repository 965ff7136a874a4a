"""Folders of ours outside a run."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Folder of caches: `GRPO_CACHE_DIR`, else the platform's folder for caches."""
    if given := os.environ.get("GRPO_CACHE_DIR"):
        return Path(given).expanduser()
    import platformdirs

    return platformdirs.user_cache_path("grpo", appauthor=False)
