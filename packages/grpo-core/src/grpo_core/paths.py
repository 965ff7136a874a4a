"""Paths as people give them: `~`, folders and pipes where a file is wanted, names that no system takes."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from grpo_core.errors import UserError

_KINDS = (
    (stat.S_ISREG, "a file"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)


def user_path(given: str, what: str) -> Path:
    """A path that somebody gave, with `~` taken for the home folder.

    Args:
        given: As it was written.
        what: The option or setting, for messages.

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
    """As `user_path`, as text that keeps a leading `./`, which tells a folder from a name of the hub."""
    path = user_path(given, what)
    return str(path) if given.startswith("~") else given


def check_makeable(folder: Path, what: str) -> None:
    """Refuse a folder that cannot be made, or nothing in it, before anything costs time; leaves nothing behind.

    Args:
        folder: It, or a part of its path, may be missing.
        what: The option or setting with its value, for the message.

    Raises:
        UserError: nothing can be made in the part of the path that is there.
    """
    there = next(each for each in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(each))
    try:
        os.rmdir(tempfile.mkdtemp(prefix=".", dir=there))
    except OSError as error:
        why = f"nothing can be made in {there}: {error.strerror or error}"
        raise UserError(f"{what}: {why}. Give another folder.") from None


def kind_of(path: Path) -> str:
    """What is at a path, links followed: `a file`, `a folder`, `a pipe`, …; empty where there is nothing."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, ValueError) as error:  # too long a name, a loop of links, a folder that may not be looked into
        return f"out of reach ({getattr(error, 'strerror', None) or error})"
    return next((name for is_it, name in _KINDS if is_it(mode)), "no file")
