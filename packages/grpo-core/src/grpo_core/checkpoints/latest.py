"""`step_latest`: a relative link to the checkpoint written last, or `step_latest.txt` where links cannot be made."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from grpo_sdk.files import hidden, read_regular, remove, replace_file

LINK = "step_latest"
_TEXT = "step_latest.txt"

_MAX_BYTES = 100
"""More than any checkpoint's name."""

_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
"""Errors of file systems without symbolic links (FAT, some network mounts)."""


def point_latest(folder: Path, name: str) -> None:
    """Point `step_latest` in `folder` to `name`; a reader sees the old one or the new one.

    A folder of that name, put there by a copy that followed links, is left alone: the text file is used.

    Raises:
        OSError: neither can be written.
    """
    link, text = folder / LINK, folder / _TEXT
    if link.is_symlink() or not link.exists():
        partial = hidden(link, "partial")
        try:
            remove(partial)
            partial.symlink_to(name, target_is_directory=True)
            os.replace(partial, link)
        except OSError as error:
            remove(partial)
            if error.errno not in _NO_LINKS:
                raise
        else:
            text.unlink(missing_ok=True)
            return
    replace_file(text, f"{name}\n".encode())
    if link.is_symlink():
        link.unlink()


def read_latest(folder: Path) -> str | None:
    """Return the name that `step_latest` points to, or whatever else it holds; None without one."""
    link = folder / LINK
    try:
        if link.is_symlink():
            target = Path(os.path.abspath(folder / os.readlink(link)))
            return target.name if str(target.parent) == os.path.abspath(folder) else str(target)
        return read_regular(folder / _TEXT, _MAX_BYTES).decode("utf-8", "replace").strip()
    except OSError:
        return None
