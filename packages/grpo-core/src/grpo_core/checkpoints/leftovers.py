"""Files that a killed writer left behind, as opposed to those that a running one is writing."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from grpo_core.checkpoints.errors import CheckpointError
from grpo_core.checkpoints.files import remove
from grpo_core.checkpoints.names import parse_hidden

_CLOCK_SLACK_S = 60.0
"""Time by which a process may seem to have started after the folder it writes: clocks of servers differ."""

_WRITING: set[str] = set()
"""Partial folders that this process is filling now."""


@contextmanager
def marked_as_written(partial: Path) -> Iterator[None]:
    """Keep `partial` from `remove_leftovers` in this process, whose id a killed one may have had before.

    Raises:
        RuntimeError: this process is writing it already.
    """
    mark = os.path.abspath(partial)
    if mark in _WRITING:
        raise RuntimeError(f"this process is writing {partial} already.")
    _WRITING.add(mark)
    try:
        yield
    finally:
        _WRITING.discard(mark)


def remove_leftovers(folders: Iterable[Path]) -> list[Path]:
    """Remove what writers that no longer live left in `folders`, and undo a replacement that one of them began.

    Returns:
        The removed files and folders.

    Raises:
        CheckpointError: one of them cannot be removed.
        OSError: a folder cannot be read or written.
    """
    removed = []
    for path in [path for folder in folders if folder.is_dir() for path in sorted(folder.iterdir())]:
        name = parse_hidden(path.name)
        if name is None or _is_being_written(path, name.pid):
            continue
        target = path.with_name(name.target)
        if name.purpose == "replaced" and not os.path.lexists(target):
            os.rename(path, target)
            continue
        remove(path)
        if os.path.lexists(path):
            raise CheckpointError(f"cannot remove {path}, which a killed run left: remove it by hand.")
        removed.append(path)
    return removed


def _is_being_written(path: Path, pid: int) -> bool:
    """Return whether the process that made `path` still runs; another that was given its id since does not count."""
    if pid == os.getpid():
        return os.path.abspath(path) in _WRITING
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return bool(process.create_time() <= path.lstat().st_ctime + _CLOCK_SLACK_S)
    except (psutil.NoSuchProcess, FileNotFoundError):  # either has just ended
        return False
    except psutil.AccessDenied:
        return True
