"""Restoring and listing archived runs; an archive may come from anyone."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import filelock

from grpo_core.checkpoints.checksums import FileRecord
from grpo_core.checkpoints.files import fsync, human_size, sha256_of
from grpo_core.checkpoints.latest import point_latest
from grpo_core.checkpoints.run import CHECKPOINTS
from grpo_core.errors import UserError
from grpo_core.launch.archive.manifest import OBJECTS, Manifest, is_run_name, read_manifest
from grpo_core.launch.archive.store import BLOCK, ArchiveError, Store
from grpo_core.launch.archive.upload import Progress

RUN, PARTS = "run", "parts"
"""In the folder of a restoring: files that are whole, and those that are not yet."""

MARGIN_BYTES = 64 * 2**20
"""Left free on the disk."""


@dataclass(frozen=True, slots=True)
class ArchivedRun:
    """A run in an archive.

    Attributes:
        url: Its URL, which `restore_run` takes.
        manifest: What it holds; None of an archiving that has not ended.
        problem: Why it cannot be restored.
    """

    url: str
    manifest: Manifest | None
    problem: str = ""


def list_runs(url: str) -> list[ArchivedRun]:
    """Return the runs in an archive; for the URL of a run, that run alone.

    Raises:
        UserError: no such URL.
        ArchiveError: the storage refuses.
    """
    store = Store(url)
    folders = store.folders()
    stores = [store] if OBJECTS in folders else [store.inside(name) for name in folders if is_run_name(name)]
    runs = []
    for each in stores:
        try:
            manifest = read_manifest(each)
        except ArchiveError as error:
            runs.append(ArchivedRun(each.url, None, str(error)))
            continue
        if manifest is not None or OBJECTS in each.folders():
            runs.append(ArchivedRun(each.url, manifest, "" if manifest else "not complete: archive it again"))
    return runs


def restore_run(url: str, folder: Path, *, progress: Progress) -> Path:
    """Restore an archived run; an interrupted restoring goes on where it was.

    Args:
        url: URL of the run in its archive.
        folder: Folder that receives the folder of the run.
        progress: Notified of the bytes.

    Returns:
        Folder of the run.

    Raises:
        UserError: there is no such run, or the folder holds one of that name already.
        ArchiveError: the archive is damaged or lies about its files, the disk is full, or the storage refuses.
    """
    store = Store(url)
    manifest = read_manifest(store)
    if manifest is None:
        raise UserError(f"{store.url}: no archived run.{_advice(url)}")
    target, work = folder / manifest.run, folder / f".{manifest.run}.restoring"
    if os.path.lexists(target):
        raise UserError(f"{target} is there already: give another folder, or move it away.")
    try:
        (work / RUN).mkdir(parents=True, exist_ok=True)
        (work / PARTS).mkdir(exist_ok=True)
        with filelock.FileLock(work / "lock", timeout=0):
            _check_room(manifest, work)
            _download(store, manifest, work, progress)
            if manifest.latest is not None:
                point_latest(work / RUN / CHECKPOINTS, manifest.latest)
            os.replace(work / RUN, target)
            fsync(folder)
        shutil.rmtree(work)
    except filelock.Timeout:
        raise UserError(f"{target} is being restored by another process.") from None
    except OSError as error:
        raise ArchiveError(f"{error.filename or folder} cannot be written: {error.strerror or error}.") from None
    return target


def _advice(url: str) -> str:
    runs = [each.url for each in list_runs(url) if each.manifest is not None]
    return f" It holds {len(runs)}: give one, as in {runs[-1]}." if runs else " grpo archive --list URL lists them."


def _check_room(manifest: Manifest, work: Path) -> None:
    have = sum((work / name).lstat().st_size for name in _files(work))
    needed, free = manifest.size - have + MARGIN_BYTES, shutil.disk_usage(work).free
    if needed > free:
        raise ArchiveError(
            f"{manifest.run} needs {human_size(needed)} more, and {human_size(free)} are free in {work.parent}."
        )


def _download(store: Store, manifest: Manifest, work: Path, progress: Progress) -> None:
    for name in set(_files(work / RUN)) - manifest.files.keys():
        (work / RUN / name).unlink()  # of an older manifest
    done = 0
    for name, record in manifest.files.items():
        path = work / RUN / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not (path.is_file() and path.stat().st_size == record.size and sha256_of(path) == record.sha256):
            for count in _fetch(store, name, record, work / PARTS / record.sha256):
                progress("restoring", done + count, manifest.size)
            os.replace(work / PARTS / record.sha256, path)
        done += record.size
        progress("restoring", done, manifest.size)


def _files(folder: Path) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()]


def _fetch(store: Store, name: str, record: FileRecord, part: Path) -> Iterator[int]:
    """Download a file, after what an interrupted download has left of it; yields the bytes that are there."""
    digest, size = hashlib.sha256(), 0
    with part.open("a+b") as file:
        file.seek(0)
        while block := file.read(BLOCK):
            digest.update(block)
            size += len(block)
        try:
            for block in store.blocks(f"{OBJECTS}/{record.sha256}", size) if size < record.size or not size else ():
                size += len(block)
                if size > record.size:
                    break
                file.write(block)
                digest.update(block)
                yield size
        except FileNotFoundError:
            raise ArchiveError(f"{store.url} is damaged: the content of {name!r} is missing.") from None
        file.flush()
        os.fsync(file.fileno())
    if size != record.size or digest.hexdigest() != record.sha256:
        part.unlink()
        raise ArchiveError(
            f"{store.url} is damaged: the content of {name!r} is not what was archived. If the run is still there, "
            f"delete {OBJECTS}/{record.sha256} in the archive and archive the run again."
        )
