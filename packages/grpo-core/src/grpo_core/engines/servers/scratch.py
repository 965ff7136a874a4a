"""Folders that do not outlive this process, even if it is killed: weights in memory are as large as a model."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")

_REMOVE_AT_END = """
import shutil, signal, sys
for name in ("SIGINT", "SIGTERM", "SIGHUP"):
    if hasattr(signal, name):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
if not sys.stdin.read():
    shutil.rmtree(sys.argv[1], ignore_errors=True)
"""
"""A program that waits for the end of its parent, which closes its input, and then removes a folder."""


class ScratchFolder:
    """A new folder, removed by `close`, or at the end of this process however it ends.

    Args:
        prefix: Beginning of its name.
        place: Folder that receives it; None is that of temporary files.

    Attributes:
        path: The folder, which only this user can open.

    Raises:
        OSError: it cannot be made.
    """

    def __init__(self, prefix: str, place: Path | None = None) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
        remover = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _REMOVE_AT_END, str(self.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # signals to the trainer's group are not for it
        )
        self._keeps: list[bool] = []
        self._end = weakref.finalize(self, _end, self.path, self._keeps, remover)

    def close(self, *, keeps: bool = False) -> None:
        """Remove the folder, or leave it from now on."""
        self._keeps.append(keeps)
        self._end()


def _end(path: Path, keeps: Sequence[bool], remover: subprocess.Popen[bytes]) -> None:
    if not any(keeps):
        shutil.rmtree(path, ignore_errors=True)
    remover.communicate(b"done")


def weights_folder(n_bytes: int) -> ScratchFolder:
    """A folder for weights: in memory, where there is room for them twice, else where temporary files go."""
    in_memory = SHARED_MEMORY.is_dir() and shutil.disk_usage(SHARED_MEMORY).free > 2 * n_bytes
    return ScratchFolder("grpo-weights-", SHARED_MEMORY if in_memory else None)
