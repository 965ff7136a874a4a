from __future__ import annotations

import os
import shutil


class Folder:
    """A writable folder for level L1, emptied after each program.

    Args:
        path: Existing folder; its creator removes it.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def renew(self) -> bool:
        """Remove what the last program left; return whether there was anything."""
        entries = list(os.scandir(self.path))
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                os.unlink(entry.path)
        return bool(entries)
