"""What a Python program needs from the host: the standard library, its shared objects, and time zones."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import sys
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path

EXTENSIONS_FOLDER = "lib-dynload"

PRELOADED = (
    *("abc", "array", "ast", "atexit", "base64", "binascii", "bisect", "builtins", "calendar", "cmath", "codecs"),
    *("collections", "collections.abc", "contextlib", "copy", "dataclasses", "datetime", "decimal", "encodings.ascii"),
    *("encodings.latin_1", "enum", "fractions", "functools", "gc", "hashlib", "heapq", "importlib.util", "inspect"),
    *("io", "itertools", "json", "keyword", "linecache", "math", "numbers", "operator", "pprint", "random"),
    *("re", "statistics", "string", "struct", "textwrap", "time", "timeit", "tokenize", "traceback"),
    *("types", "typing", "unicodedata", "uuid", "warnings", "weakref", "zlib"),
)
"""Modules imported before the fork: those that solutions of MBPP and HumanEval import.

`threading` and its importers are left out: few programs use them, and their work after a fork would cost every other
program a tenth of its time.
"""

_EXTRA_OBJECTS = ("libgcc_s.so.1",)
"""Objects that the C library loads when a thread ends itself."""
_IGNORED_EXTENSIONS = ("_test", "_xx", "xx", "_ctypes_test", "_tkinter", "nis", "ossaudiodev")
"""Extensions for tests, displays, networks and sound; _tkinter alone would load a dozen objects."""


def folders(numpy_path: str) -> list[str]:
    """Return the import path of an interpreter without site packages, its time zones, and NumPy with its libraries."""
    import zoneinfo

    entries = (*sys.path, *zoneinfo.TZPATH, numpy_path, f"{numpy_path}.libs")
    return [entry for entry in entries if os.path.exists(entry)]


class InstalledFinder:
    """Finds one package of the site packages, whose folder cannot be listed.

    Args:
        package: Name of the package.
        folder: Its folder.
    """

    def __init__(self, package: str, folder: str) -> None:
        self._package, self._folder = package, folder

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Return where the package is; None for any other name."""
        if name != self._package:
            return None
        return spec_from_file_location(name, f"{self._folder}/__init__.py", submodule_search_locations=[self._folder])


def _loaded_objects() -> list[str]:
    """Return the paths of the shared objects in this process.

    Raises:
        OSError: the system does not report them.
    """
    lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    paths = {line.split(maxsplit=5)[5] for line in lines if "/" in line}
    return sorted(path for path in paths if ".so" in os.path.basename(path))


def load_shared_objects(numpy_path: str) -> None:
    """Load every shared object that an extension of the standard library or of NumPy links: later, none is found.

    A child finds out which they are, since loading the extensions here would make every fork slower.
    """
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            _load_extensions(numpy_path)
            os.write(write_end, json.dumps(_loaded_objects()).encode())
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        output = pipe.read()
    os.waitpid(pid, 0)
    for name in (*(json.loads(output) if output else ()), *_EXTRA_OBJECTS):
        if f"/{EXTENSIONS_FOLDER}/" not in name and not (numpy_path and name.startswith(numpy_path)):
            _load(name)


def _load_extensions(numpy_path: str) -> None:
    for folder in (*sys.path, os.path.join(numpy_path, "_core")):
        if os.path.basename(folder) in (EXTENSIONS_FOLDER, "_core") and os.path.isdir(folder):
            for name in os.listdir(folder):
                if ".so" in name and not name.startswith(_IGNORED_EXTENSIONS):
                    _load(os.path.join(folder, name))


def _load(name: str) -> None:
    with contextlib.suppress(OSError):  # missing on this system, with the extension that links it
        ctypes.CDLL(name)
