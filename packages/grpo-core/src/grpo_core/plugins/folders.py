"""Folders of ours outside a run."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache_folder() -> Path:
    """Where what can be made again is kept: `GRPO_CACHE_DIR`, else the platform's folder for caches."""
    if given := os.environ.get("GRPO_CACHE_DIR"):
        return Path(given).expanduser()
    if sys.platform == "darwin":
        return Path("~/Library/Caches/grpo").expanduser()
    base = os.environ.get("XDG_CACHE_HOME", "")
    # A relative path is invalid there: https://specifications.freedesktop.org/basedir-spec/latest/
    return (Path(base) if base.startswith("/") else Path("~/.cache").expanduser()) / "grpo"
