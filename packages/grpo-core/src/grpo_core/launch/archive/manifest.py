"""`manifest.json` of an archived run, the file that is written last: with it the archive is complete."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson

from grpo_core.checkpoints.checksums import FileRecord, shown
from grpo_core.checkpoints.names import parse_checkpoint
from grpo_core.checkpoints.run import CHECKPOINTS
from grpo_core.launch.archive.store import ArchiveError, Store

VERSION = 1
"""Version of the format; changes are announced a minor version ahead."""

MANIFEST, OBJECTS = "manifest.json", "objects"

MAX_BYTES = 64 * 2**20
"""Some 400,000 files; a run has hundreds."""

MAX_NAME_CHARS = 1024

_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_TIME = re.compile(r"[0-9T:+.-]{10,40}")


@dataclass(frozen=True, slots=True)
class Manifest:
    """What an archive of a run holds.

    Attributes:
        run: Name of the run's folder.
        files: Name relative to the run -> checksum and size; contents are in `objects`, by checksum.
        latest: Name of the checkpoint that was written last; None without any.
        created: Time of the archiving, in UTC.
    """

    run: str
    files: Mapping[str, FileRecord]
    latest: str | None = None
    created: str = ""

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(record.size for record in self.files.values())

    @property
    def checkpoints(self) -> list[str]:
        """Names of the checkpoints, in the order of their steps."""
        return sorted_checkpoints({name for each in self.files if (name := checkpoint_of(each)) is not None})

    def write(self, store: Store) -> None:
        """Write it to the folder of the run's archive."""
        content = orjson.dumps(
            {
                "version": VERSION,
                "run": self.run,
                "created": datetime.now(UTC).isoformat(timespec="seconds"),
                "latest": self.latest,
                "files": self.files,
            },
            option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE | orjson.OPT_SORT_KEYS,
        )
        store.write(MANIFEST, [content])


def read_manifest(store: Store) -> Manifest | None:
    """Read the manifest of an archived run, which may come from anyone; None if there is none.

    Raises:
        ArchiveError: it is damaged, of a newer version, or names files outside of the run.
    """
    content = store.read(MANIFEST, MAX_BYTES)
    if content is None:
        return None
    where = f"{store.url}/{MANIFEST}"
    try:
        data = orjson.loads(content)
    except orjson.JSONDecodeError:
        data = None
    if not isinstance(data, dict) or type(data.get("version")) is not int or data["version"] < 1:
        raise ArchiveError(f"{where} is damaged: it is no manifest.")
    if data["version"] > VERSION:
        raise ArchiveError(f"{where} was written by a newer version of grpo-core: update grpo-core.")
    run, latest, created, files = (data.get(key) for key in ("run", "latest", "created", "files"))
    if not isinstance(run, str) or not is_run_name(run):
        raise ArchiveError(f"{where} is damaged: {shown(run)} is no name of a run.")
    if not isinstance(files, dict):
        raise ArchiveError(f"{where} is damaged: it has no files.")
    records = {name: _record(name, record, where) for name, record in files.items()}
    folders = {"/".join(parts[:end]) for name in records for parts in [name.split("/")] for end in range(1, len(parts))}
    if clash := sorted(folders & records.keys()):
        raise ArchiveError(f"{where} is damaged: {clash[0]!r} is both a file and a folder.")
    if latest is not None and (not isinstance(latest, str) or parse_checkpoint(latest) is None):
        raise ArchiveError(f"{where} is damaged: {shown(latest)} is no checkpoint.")
    return Manifest(run, records, latest, created if isinstance(created, str) and _TIME.fullmatch(created) else "")


def is_run_name(name: str) -> bool:
    """Whether a run of this name can be archived: letters, digits, dots, dashes and underscores."""
    return _RUN.fullmatch(name) is not None


def is_storable(name: str) -> bool:
    """Whether a name relative to a run stays inside of it on every system, and can be printed."""
    parts = name.split("/")
    return (
        len(name) <= MAX_NAME_CHARS
        and name.isprintable()
        and not any(part in {"", ".", ".."} or "\\" in part or ":" in part for part in parts)
    )


def checkpoint_of(name: str) -> str | None:
    """Return the checkpoint that a file of a run belongs to."""
    parts = name.split("/")
    is_inside = len(parts) > 2 and parts[0] == CHECKPOINTS and parse_checkpoint(parts[1]) is not None
    return parts[1] if is_inside else None


def sorted_checkpoints(names: set[str]) -> list[str]:
    """Return names of checkpoints in the order of their steps; `step_final` is the last."""
    steps = {name: parse_checkpoint(name) for name in names}
    return sorted(names, key=lambda name: float("inf") if steps[name] == "final" else float(steps[name] or 0))


def _record(name: str, record: Any, where: str) -> FileRecord:
    if not is_storable(name):
        raise ArchiveError(f"{where} is refused: {shown(name)} would not lie in the folder of the run.")
    sha256, size = (record.get("sha256"), record.get("size")) if isinstance(record, dict) else (None, None)
    if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256) or type(size) is not int or size < 0:
        raise ArchiveError(f"{where} is damaged: the entry of {shown(name)} is not a sha256 and a size.")
    return FileRecord(sha256, size)
