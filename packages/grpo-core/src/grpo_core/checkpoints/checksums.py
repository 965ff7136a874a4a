"""`checksums.json`, the last file written into a checkpoint: with it the checkpoint is complete."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from grpo_sdk.errors import CheckpointError
from grpo_sdk.files import fsync, read_json, sha256_of, system_words, tree

FORMAT_VERSION = 1
"""Version of a checkpoint's files; changes are announced a minor version ahead."""

CHECKSUMS = "checksums.json"

_MAX_BYTES = 8 * 2**20
"""Some 60,000 files; a checkpoint has tens."""

_MAX_NAME = 1024
"""Longest relative name, in characters."""

MAX_SERIAL = 10**12
"""Bounds the arithmetic on a number that came from outside."""

_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class FileRecord:
    """A file as it was written.

    Attributes:
        sha256: SHA-256 of its content, in hexadecimal.
        size: Size in bytes.
    """

    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Checksums:
    """The content of `checksums.json`.

    Attributes:
        serial: Greater than that of every checkpoint which the run wrote before; says which one is newest, which
            the steps' numbers do not once a run went back to an earlier one.
        files: Every other file of the checkpoint, by its name relative to it.
    """

    serial: int
    files: Mapping[str, FileRecord]

    @property
    def size(self) -> int:
        """All files together, in bytes."""
        return sum(record.size for record in self.files.values())


def seal(folder: Path, serial: int) -> None:
    """Write a checkpoint's `checksums.json`, once everything else in it is on the disk.

    Args:
        folder: Holds all other files of the checkpoint.
        serial: Serial number; see `Checksums`.

    Raises:
        CheckpointError: it holds a link, or names that a checkpoint cannot have.
        OSError: the disk refused.
    """
    names, folders = tree(folder)
    if CHECKSUMS in names:
        raise CheckpointError(f"{folder}: {CHECKSUMS!r} is the name of our own list; choose another one.")
    files = {name: _flushed_record(folder / name) for name in names}
    for name in files:
        _check_name(name, folder)
    content = orjson.dumps(
        {"version": FORMAT_VERSION, "serial": serial, "files": files},
        option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE,
    )
    if len(content) > _MAX_BYTES:
        raise CheckpointError(f"{folder}: {len(files)} files are too many for a checkpoint.")
    for inner in reversed(folders[1:]):
        fsync(inner)
    with (folder / CHECKSUMS).open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    fsync(folder)


def _flushed_record(path: Path) -> FileRecord:
    with path.open("rb") as file:
        os.fsync(file.fileno())
        return FileRecord(hashlib.file_digest(file, "sha256").hexdigest(), file.tell())


def read_checksums(folder: Path) -> Checksums:
    """Parse a checkpoint's `checksums.json`, which may come from anyone.

    Raises:
        CheckpointError: it is missing, damaged, or of a newer version.
    """
    path = folder / CHECKSUMS
    data = read_json(path, f"checkpoint {folder.name} is not complete: its list of files", max_bytes=_MAX_BYTES)
    version = data.get("version")
    if type(version) is int and version > FORMAT_VERSION:
        raise CheckpointError(
            f"{folder} was written by a newer version of grpo-core: its format is {version}, and this one reads "
            f"formats up to {FORMAT_VERSION}. Update grpo-core."
        )
    if type(version) is not int or version < 1:
        raise CheckpointError(f"{path} is damaged: 'version' is {shown(version)}, not a positive integer.")
    serial = data.get("serial")
    if type(serial) is not int or not 0 <= serial <= MAX_SERIAL:
        raise CheckpointError(f"{path} is damaged: 'serial' is {shown(serial)}, not an integer up to {MAX_SERIAL:,}.")
    files = data.get("files")
    if not isinstance(files, dict):
        raise CheckpointError(f"{path} is damaged: 'files' is {shown(files)}, not an object.")
    return Checksums(serial, {name: _parsed_record(name, record, path) for name, record in files.items()})


def _parsed_record(name: str, record: Any, path: Path) -> FileRecord:
    _check_name(name, path)
    sha256, size = (record.get("sha256"), record.get("size")) if isinstance(record, dict) else (None, None)
    if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256) or type(size) is not int or size < 0:
        raise CheckpointError(f"{path} is damaged: the entry of {shown(name)} is not a sha256 and a size.")
    return FileRecord(sha256, size)


def _check_name(name: str, where: Path) -> None:
    """Refuse a name that could leave the folder, on any system, or that cannot be printed."""
    parts = name.split("/")
    if (
        len(name) > _MAX_NAME
        or not name.isprintable()
        or any(part in {"", ".", ".."} or "\\" in part or ":" in part for part in parts)
        or name == CHECKSUMS
    ):
        raise CheckpointError(f"{where}: {shown(name)} is not a name that a file in a checkpoint can have.")


def shown(value: object) -> str:
    """Return the start of a hostile value, printable and on one line."""
    text = ascii(value) if isinstance(value, str | int | float | None) else f"a {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:80]}…"


def check_complete(folder: Path) -> Checksums:
    """Check that every file is there with its size; cheap, no content is read.

    Raises:
        CheckpointError: names the first file that is not.
    """
    checksums = read_checksums(folder)
    for name, record in checksums.files.items():
        try:
            size = (folder / name).lstat().st_size
        except OSError:
            raise CheckpointError(f"{folder} is damaged: {name!r} is missing.") from None
        if size != record.size:
            raise CheckpointError(
                f"{folder} is damaged: {name!r} has {size:,} bytes and had {record.size:,} when it was written."
            )
    return checksums


def check_content(folder: Path, *, only: Collection[str] | None = None) -> Checksums:
    """Check a checkpoint against its list: nothing missing, changed, linked or added.

    Names that start with a dot and were not written with it are let pass: file managers and download caches leave
    them behind, and no loader reads them.

    Raises:
        CheckpointError: names the first file that is not as it was written.
    """
    checksums = check_complete(folder)
    try:
        names, _ = tree(folder)
        for name in names.keys() - checksums.files.keys() - {CHECKSUMS}:
            if not any(part.startswith(".") for part in name.split("/")):
                raise CheckpointError(f"{folder} is damaged: {name!r} was not written with it; move it away.")
        for name, record in checksums.files.items():
            if (only is None or name in only) and sha256_of(folder / name) != record.sha256:
                raise CheckpointError(
                    f"{folder} is damaged: the content of {name!r} is not what was written (another sha256)."
                )
    except OSError as error:
        raise CheckpointError(f"{folder} cannot be read: {system_words(error)}.") from None
    return checksums
