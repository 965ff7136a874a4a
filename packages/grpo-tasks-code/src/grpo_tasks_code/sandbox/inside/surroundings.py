"""What a test and the program share besides calls: standard streams, functions that a test replaces, warnings, files.

They run in two processes. Before a question the judge tells the program what has been replaced, as

    sys.stdout = io.StringIO()                          with patch("builtins.input", return_value="4"):

and then the program's uses call back. Files of the working folder travel with each question and answer, if the test
uses files. All of it is data: the judge imports nothing from that folder.
"""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

_STREAMS = ("stdin", "stdout", "stderr")
_REPLACED = (
    *(("sys", name) for name in ("argv", *_STREAMS)),
    *(("builtins", name) for name in ("input", "print")),
    *(("time", name) for name in ("sleep", "time", "perf_counter", "monotonic")),
    *(("random", name) for name in ("random", "randint", "randrange", "choice", "uniform", "shuffle")),
    ("warnings", "filters"),
)
"""Members of modules that tests replace for the program; all are loaded before the fork."""

MAX_FILES = 200
MAX_FILE_BYTES = 1 << 18
"""Bounds on the files that travel: those of a test are few and short."""
Files = dict[str, bytes | None]
"""Content by path, relative to the working folder; None is a folder."""


class Surroundings:
    """What the tests of a judge have replaced, and the files that a test shares.

    Args:
        warned: Called with the class names and text of each warning of the program, while a test catches warnings.

    Attributes:
        folder: Working folder of the judge, if the test uses files.
    """

    folder: SharedFolder | None = None

    def __init__(self, warned: Callable[[Sequence[str], str], None]) -> None:
        self._warned = warned
        self._original = self._current()
        self._told = dict(self._original)

    def news(self) -> Iterator[tuple[str, str, Any]]:
        """Yield the members that have changed since: module, name, and what the program uses instead or None."""
        told, self._told = self._told, self._current()
        for key, now in self._told.items():
            if now is not told[key]:
                yield *key, None if now is self._original[key] else self._substitute(key[1], now)

    def _current(self) -> dict[tuple[str, str], Any]:
        return {(module, name): getattr(sys.modules[module], name) for module, name in _REPLACED}

    def restore(self) -> None:
        """Take back what a test has left replaced."""
        for (module, name), value in self._original.items():
            setattr(sys.modules[module], name, value)

    def _substitute(self, name: str, value: Any) -> Any:
        if name == "filters":
            return self._warned
        if name in _STREAMS:
            return [value.write, value.readline, value.read]
        # A mock has every method, and would pass for a list or an iterator.
        return (lambda *arguments, **keywords: value(*arguments, **keywords)) if callable(value) else value


def _forward(warned: Callable[..., Any], message: Warning, category: type[Warning], *_: Any) -> None:
    warned([kind.__name__ for kind in category.__mro__], str(message))


def replace(original: dict[tuple[str, str], Any], module: str, name: str, value: Any) -> None:
    """In the program, replace a member by what the test has, or by the original if that is None."""
    if name == "filters":
        name = "showwarning"
        warnings.simplefilter("always" if value else "default")
        if value is not None:
            value = partial(_forward, value)
    elif name in _STREAMS and value is not None:
        stream: Any = io.TextIOBase()
        stream.write, stream.readline, stream.read = value
        value = stream
    owner = sys.modules[module]
    original.setdefault((module, name), getattr(owner, name))
    setattr(owner, name, original[module, name] if value is None else value)


class SharedFolder:
    """The working folder of one side, with what the other side knows of it; no folder where programs have none."""

    def __init__(self) -> None:
        self._base = os.environ.get("HOME", "/")
        self._known: Files = {}

    def news(self) -> list[Any]:
        """Return what has changed since: new content by path, and paths that are gone."""
        now = self._files()
        changed = {
            path: content for path, content in now.items() if path not in self._known or self._known[path] != content
        }
        gone = [path for path in self._known if path not in now]
        self._known = now
        return [changed, gone]

    def apply(self, changed: Mapping[str, bytes | None], gone: Sequence[str]) -> None:
        """Make the other side's changes.

        Raises:
            ValueError: a path leads out of the folder.
        """
        for path in [*changed, *gone]:
            if os.path.isabs(path) or ".." in path.split("/"):
                raise ValueError(f"not a path in the working folder: {path!r}")
        for path, content in sorted(changed.items()):
            there = Path(self._base, path)
            if content is None:
                there.mkdir(parents=True, exist_ok=True)
            else:
                there.write_bytes(content)
        for there in (Path(self._base, path) for path in sorted(gone, reverse=True)):
            if there.is_dir():
                there.rmdir()
            else:
                there.unlink(missing_ok=True)
        self._known = self._files()

    def _files(self) -> Files:
        paths = [] if self._base == "/" else sorted(islice(Path(self._base).rglob("*"), MAX_FILES))
        return {
            str(path.relative_to(self._base)): None if path.is_dir() else path.read_bytes()
            for path in paths
            if path.is_dir() or (path.is_file() and path.stat().st_size <= MAX_FILE_BYTES)
        }
