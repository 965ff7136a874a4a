"""The user as which a program runs, and what that user can read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

NOBODY = 65534
"""User without rights of its own, present on every Linux."""


def exists(uid: int) -> bool:
    """Return whether a user exists: the namespace of a container may have a single one."""
    for line in Path("/proc/self/uid_map").read_text(encoding="ascii").splitlines():
        first, _, count = map(int, line.split())
        if first <= uid < first + count:
            return True
    return False


def change_to(uid: int) -> None:
    """Change to a user and its group, without other groups.

    Raises:
        OSError: the kernel refuses.
    """
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def can_read(uid: int, folders: Sequence[str]) -> bool:
    """Return whether a user can read the standard library, which may lie in root's home."""
    files = [entry.path for folder in filter(os.path.isdir, folders) for entry in os.scandir(folder) if entry.is_file()]
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            change_to(uid)
            for path in files:
                os.close(os.open(path, os.O_RDONLY))
            code = 0
        except OSError:
            pass
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1] == 0
