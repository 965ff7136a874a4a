"""Disk space that is held while what will fill it is computed."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from grpo_sdk.errors import UserError
from grpo_sdk.files import human_size
from grpo_sdk.paths import existing_part

TOKENIZER_BYTES = 256
"""Room for the files of a tokenizer, for each of its tokens."""


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
        if error := allocate(file.fileno(), size):
            raise UserError(
                f"{what} needs {human_size(size)} in {folder}, and {human_size(shutil.disk_usage(disk).free)} "
                f"are free: {os.strerror(error)}. Make room, or choose another folder."
            )
        yield


def allocate(file: int, size: int) -> int:
    """Give a file blocks on the disk; return the error number of a disk or a quota that is full, else 0.

    Not by `os.posix_fallocate`, which writes to every block where the file system cannot reserve: minutes for tens of
    gigabytes on a network.
    """
    allocate = getattr(ctypes.CDLL(None, use_errno=True), "fallocate", None)
    if allocate is None or allocate(file, 0, ctypes.c_int64(0), ctypes.c_int64(size)) == 0:
        return 0
    number = ctypes.get_errno()
    return number if number in (errno.ENOSPC, errno.EDQUOT) else 0  # a limit on one file may do for each of several
