"""Folders of mode 700 of somebody else, also where the tests run as root, who may look into everything."""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def close_folder(monkeypatch: pytest.MonkeyPatch, *folders: Path) -> None:
    """Refuse to list folders and to look at what is in them."""

    def refusing(method: Callable[..., Any], *, lists: bool) -> Callable[..., Any]:
        def refused(path: Path, *args: Any, **options: Any) -> Any:
            if any(folder in path.parents or (lists and path == folder) for folder in folders):
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return method(path, *args, **options)

        return refused

    for name in ("stat", "open", "iterdir"):
        monkeypatch.setattr(Path, name, refusing(getattr(Path, name), lists=name == "iterdir"))
