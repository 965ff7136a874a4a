"""Contributions of plugins, remembered between processes in the cache folder, until their files change.

The file is read by every command and written by any process: it is bounded, checked, replaced in one piece, and names
nothing that is run. A process uses it to know which plugin to import; what it then uses, it takes from the plugin.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import sys
import sysconfig
import time
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from grpo_sdk.plugins.facts import PluginFacts
from grpo_sdk.plugins.folders import cache_folder

FORMAT = 2

MAX_FILE_BYTES = 8 << 20

MAX_PLUGINS = 256

MAX_SOURCE_FILES = 5_000
"""Most files of a plugin's package that are checked for changes: a namespace may hold all that is installed."""

FAILURE_KEPT_S = 3600.0
"""Time for which a failure is remembered: what is missing (a licence, a variable) may come without a trace."""

SOURCES = (".py", ".so", ".pyd")


class PluginMemory:
    """Facts by plugin, each with the stamp of the files that it was found in."""

    def __init__(self) -> None:
        self._entries: dict[str, dict[str, Any]] | None = None
        self._has_warned = False

    def recall(self, plugin: str, stamp: str) -> PluginFacts | None:
        """Facts of a plugin in this state; None where it has to be probed."""
        if self._entries is None:
            self._entries = _read(_path())
        entry = self._entries.get(plugin)
        if not isinstance(entry, dict) or entry.get("stamp") != stamp:
            return None
        try:
            facts = PluginFacts.from_json(entry.get("facts"))
        except ValueError:
            return None
        # What a plugin imports may have come or gone with another package.
        is_fresh = entry.get("packages") == _packages_changed() and (not facts.error or _is_recent(entry))
        return facts if is_fresh else None

    def remember(self, found: dict[str, tuple[str, PluginFacts]]) -> None:
        """Store facts: plugin -> (stamp, facts). Where the folder cannot be written, it is said once."""
        now = {"at": time.time(), "packages": _packages_changed()}
        new = {name: {"stamp": stamp, "facts": facts.to_json(), **now} for name, (stamp, facts) in found.items()}
        from grpo_sdk.files import replace_file  # most commands find nothing new

        path = _path()
        # Read again, because another process may have written since.
        kept = {name: entry for name, entry in _read(path).items() if name not in new}
        self._entries = dict(list((kept | new).items())[-MAX_PLUGINS:])
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, json.dumps({"format": FORMAT, "plugins": self._entries}).encode())
        except OSError as error:
            if not self._has_warned:
                self._has_warned = True
                print(
                    f"{path.parent}: cannot be written ({error.strerror or error}), so plugins are looked at again by "
                    "every command. GRPO_CACHE_DIR names another folder.",
                    file=sys.stderr,
                )


def stamp_of(points: list[metadata.EntryPoint], distribution: str) -> str:
    """A hash that changes when a plugin is installed anew or its source files are edited; imports nothing."""
    digest = hashlib.blake2b(digest_size=12)
    for fact in (distribution, *(point.value for point in points)):
        digest.update(f"{fact}\n".encode("utf-8", "surrogatepass"))
    for top in sorted({point.value.partition(":")[0].partition(".")[0].strip() for point in points}):
        for file, status in _sources(top):
            digest.update(f"{file} {status.st_size} {status.st_mtime_ns}\n".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _sources(module: str) -> list[tuple[str, os.stat_result]]:
    """The source files of a top-level module or package."""
    try:
        spec = importlib.util.find_spec(module)  # of a top-level name, which imports nothing
    except (ImportError, ValueError, AttributeError):
        spec = None
    if spec is None:
        return []
    files: list[tuple[str, os.stat_result]] = []
    if spec.origin is not None:
        with suppress(OSError):
            files.append((spec.origin, os.stat(spec.origin)))
    folders = list(spec.submodule_search_locations or ())
    while folders and len(files) < MAX_SOURCE_FILES:
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in sorted(entries, key=lambda each: each.name):
                if entry.is_dir(follow_symlinks=False):
                    if entry.name != "__pycache__":
                        folders.append(entry.path)
                elif entry.name.endswith(SOURCES):
                    files.append((entry.path, entry.stat()))
    return files


def _is_recent(entry: dict[str, Any]) -> bool:
    at = entry.get("at")
    return isinstance(at, int | float) and 0 <= time.time() - at <= FAILURE_KEPT_S


def _packages_changed() -> float:
    """When a package was last installed or removed."""
    changed = 0.0
    for key in ("purelib", "platlib"):
        with suppress(OSError):
            changed = max(changed, os.stat(sysconfig.get_path(key)).st_mtime)
    return changed


def _path() -> Path:
    """The file of this environment; others have plugins of their own."""
    environment = f"{sys.prefix}\n{sys.version}\n{metadata.version('grpo-sdk')}"
    name = hashlib.blake2b(environment.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return cache_folder() / "plugins" / f"{name}.json"


def _read(path: Path) -> dict[str, dict[str, Any]]:
    """The entries; none where the file is missing, too long or anything but what `remember` writes."""
    try:
        # A pipe would wait for its other end.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            content = file.read(MAX_FILE_BYTES + 1)
        data = json.loads(content) if len(content) <= MAX_FILE_BYTES else None
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(data, dict) or data.get("format") != FORMAT or not isinstance(data.get("plugins"), dict):
        return {}
    return dict(data["plugins"])
