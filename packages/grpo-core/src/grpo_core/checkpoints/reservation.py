"""Disk space that is held while what will fill it is computed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from grpo_core.checkpoints.files import disk_full_reason, human_size
from grpo_core.errors import UserError
from grpo_core.paths import existing_part


@contextmanager
def reserved_space(folder: Path, size: int, what: str) -> Iterator[None]:
    """Hold disk space during a block, which computes what is written after it.

    The space is that of a file without a name, so nothing is left however the process ends. Where the system cannot
    reserve (macOS, some network file systems), nothing is held.

    Args:
        folder: Folder that will be written to; need not exist.
        size: Bytes.
        what: What will be written, for the message.

    Raises:
        UserError: so much is not free.
    """
    disk = existing_part(folder)
    with tempfile.TemporaryFile(dir=disk) as file:
        if hasattr(os, "posix_fallocate"):
            try:
                os.posix_fallocate(file.fileno(), 0, size)
            except OSError as error:
                if reason := disk_full_reason(error):
                    raise UserError(
                        f"{what} needs {human_size(size)} in {folder}, and {human_size(shutil.disk_usage(disk).free)} "
                        f"are free: {reason}. Make room, or choose another folder."
                    ) from error
        yield
