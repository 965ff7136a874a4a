"""Paths as people give them: `~`, folders and pipes where a file is wanted, names that no system takes."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from functools import lru_cache
from pathlib import Path

from grpo_sdk.errors import UserError

_KINDS = (
    (stat.S_ISREG, "a file"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)


def user_path(given: str, what: str) -> Path:
    """Convert a path that a user gave, with `~` expanded to the home folder.

    Args:
        given: Path as it was written.
        what: Name of the option or setting, for messages.

    Raises:
        UserError: it is empty, or `-`, which elsewhere stands for standard input or output; or nobody has that home.
    """
    if not given:
        raise UserError(f"{what} is empty: give a path.")
    if given == "-" or "\0" in given:
        raise UserError(f"{what} {given!r}: standard input and output are not used here; give a path.")
    try:
        return Path(given).expanduser()
    except RuntimeError:  # ~nobody
        raise UserError(f"{what} {given}: there is no such home folder.") from None


def user_path_text(given: str, what: str) -> str:
    """Like `user_path`, as text that keeps a leading `./`, which tells a folder from a name of the hub."""
    path = user_path(given, what)
    return str(path) if given.startswith("~") else given


def existing_part(path: Path) -> Path:
    """The path itself if it is there, else the nearest of its parents that is."""
    return next(part for part in (path.absolute(), *path.absolute().parents) if part.exists())


def check_makeable(folder: Path, what: str) -> None:
    """Refuse a folder that cannot be made, or nothing in it, before anything costs time; leaves nothing behind.

    Args:
        folder: Folder; it, or a part of its path, may be missing.
        what: Name of the option or setting with its value, for the message.

    Raises:
        UserError: nothing can be made in the part of the path that is there.
    """
    parent = next(path for path in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(path))
    try:
        os.rmdir(tempfile.mkdtemp(prefix=".", dir=parent))
    except OSError as error:
        why = f"nothing can be made in {parent}: {error.strerror or error}"
        raise UserError(f"{what}: {why}. Give another folder.") from None


def kind_of(path: Path) -> str:
    """Kind of the file at a path, links followed: `a file`, `a folder`, `a pipe`, …; empty where there is nothing."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, ValueError) as error:  # too long a name, a loop of links, a folder that may not be looked into
        return f"out of reach ({getattr(error, 'strerror', None) or error})"
    return next((name for is_it, name in _KINDS if is_it(mode)), "no file")


def file_digest(path: Path) -> tuple[int, str]:
    """Size in bytes and BLAKE2b hash (32 hex digits) of a file, which is read once in a process until it changes."""
    facts = path.stat()
    return _digest_of(path.absolute(), facts.st_size, facts.st_mtime_ns)


@lru_cache(maxsize=64)
def _digest_of(path: Path, size: int, changed_ns: int) -> tuple[int, str]:
    with path.open("rb") as file:
        return size, hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
