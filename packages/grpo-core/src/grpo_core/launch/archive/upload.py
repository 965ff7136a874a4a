"""Archiving a run: what is not there yet is sent, then the manifest replaces the old one."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from grpo_core.checkpoints import CheckpointError, check_run
from grpo_core.checkpoints.checksums import CHECKSUMS, FileRecord, check_complete
from grpo_core.checkpoints.latest import LINK, read_latest
from grpo_core.checkpoints.names import parse_hidden
from grpo_core.checkpoints.run import CHECKPOINTS
from grpo_core.errors import UserError
from grpo_core.launch.archive.manifest import (
    OBJECTS,
    Manifest,
    checkpoint_of,
    is_run_name,
    is_storable,
    read_manifest,
    sorted_checkpoints,
)
from grpo_core.launch.archive.store import BLOCK, ArchiveError, Store
from grpo_core.tracking import presence

Progress = Callable[[str, int, int], None]
"""Notified of what is done, and of the bytes that are done and planned."""

_OF_PROCESS = frozenset({presence.LOCK.as_posix(), presence.NOTE.as_posix()})
"""Files of the process that works in the run's folder."""


@dataclass(frozen=True, slots=True)
class Archived:
    """What was done.

    Attributes:
        manifest: What the archive holds now.
        sent_files: Files that were sent.
        sent_bytes: Their bytes.
        removed: Checkpoints that were in the archive and are not any more.
        left_out: Files that cannot be archived, with the reason.
    """

    manifest: Manifest
    sent_files: int
    sent_bytes: int
    removed: list[str]
    left_out: list[str]


def archive_run(run: Path, url: str, *, keep_latest: int | None, progress: Progress) -> Archived:
    """Archive a run in a folder of its own below a URL.

    Checkpoints that are in the archive and no longer in the run stay, unless `keep_latest` leaves them out. A run that
    goes on is archived up to what it has written so far.

    Args:
        run: Folder of the run.
        url: Folder of the archive.
        keep_latest: Checkpoints to keep; None keeps all.
        progress: Notified of the bytes.

    Raises:
        UserError: no run, or no such URL.
        ArchiveError: a file changed meanwhile, or the storage refuses.
    """
    check_run(run)
    run = run.resolve()
    if not is_run_name(run.name):
        raise UserError(f"{run.name!r}: an archived run has a name of letters, digits, dots, dashes and underscores.")
    store = Store(url).inside(run.name)
    if store.is_below(run):
        raise UserError(f"{url} lies in the run that it would archive: give a folder elsewhere.")
    before = read_manifest(store)
    sizes, left_out = _scan(run)
    here = {name for each in sizes if (name := checkpoint_of(each)) is not None}
    archived = set() if before is None else set(before.checkpoints)
    latest = read_latest(run / CHECKPOINTS)
    latest = latest if latest in here else None
    kept = set(sorted_checkpoints(here | archived)[-keep_latest:] if keep_latest else here | archived)
    kept |= {latest} if latest is not None else set()
    wanted = {name: size for name, size in sizes.items() if checkpoint_of(name) in {None, *kept}}
    records = _hashed(run, wanted, progress)
    sent_files, sent_bytes = _send(store, run, records, progress)
    if before is not None:
        records |= {
            name: record for name, record in before.files.items() if checkpoint_of(name) in kept - here
        }  # fmt: skip
    manifest = Manifest(run.name, records, latest)
    manifest.write(store)
    used = {record.sha256 for record in records.values()}
    # Only what the old manifest names: another file may be what an archiving elsewhere has just sent.
    unused = set() if before is None else {record.sha256 for record in before.files.values()} - used
    store.remove(f"{OBJECTS}/{name}" for name in sorted(unused))
    return Archived(manifest, sent_files, sent_bytes, sorted_checkpoints(archived - kept), left_out)


def _scan(run: Path) -> tuple[dict[str, int], list[str]]:
    """Return the files of a run with their sizes, and those that are left out, with the reason."""
    sizes: dict[str, int] = {}
    left_out: list[str] = []
    for folder, folders, names in os.walk(run):
        folders[:] = sorted(name for name in folders if parse_hidden(name) is None)
        links = [name for name in folders if (Path(folder) / name).is_symlink()]
        for name in sorted([*names, *links]):
            path = Path(folder) / name
            relative = path.relative_to(run).as_posix()
            if relative in _OF_PROCESS or relative == f"{CHECKPOINTS}/{LINK}" or parse_hidden(name) is not None:
                continue
            status = path.lstat()
            if not stat.S_ISREG(status.st_mode):
                kind = "a link" if stat.S_ISLNK(status.st_mode) else "a pipe, a socket or a device"
                left_out.append(f"{relative}: {kind}")
            elif not is_storable(relative):
                left_out.append(f"{ascii(relative)[:200]}: a name that not every system has")
            else:
                sizes[relative] = status.st_size
    incomplete = {
        checkpoint
        for each in sizes
        if (checkpoint := checkpoint_of(each)) is not None and f"{CHECKPOINTS}/{checkpoint}/{CHECKSUMS}" not in sizes
    }
    return {name: size for name, size in sizes.items() if checkpoint_of(name) not in incomplete}, left_out


def _hashed(run: Path, sizes: Mapping[str, int], progress: Progress) -> dict[str, FileRecord]:
    """Return checksums: those of checkpoints are known, other files are read, up to the sizes that they had."""
    records: dict[str, FileRecord] = {}
    for checkpoint in {name for each in sizes if (name := checkpoint_of(each)) is not None}:
        try:
            known = check_complete(run / CHECKPOINTS / checkpoint)
        except CheckpointError as error:
            raise ArchiveError(f"{error} It was deleted meanwhile, or is damaged: try again.") from None
        records |= {f"{CHECKPOINTS}/{checkpoint}/{name}": record for name, record in known.files.items()}
    others = {name: size for name, size in sizes.items() if name not in records}
    done = 0
    for name, size in others.items():
        digest = hashlib.sha256()
        for block in _blocks(run / name, size):
            digest.update(block)
            done += len(block)
            progress("reading", done, sum(others.values()))
        records[name] = FileRecord(digest.hexdigest(), size)
    return {name: record for name, record in records.items() if name in sizes}


def _send(store: Store, run: Path, records: Mapping[str, FileRecord], progress: Progress) -> tuple[int, int]:
    """Send the contents that the archive lacks; the number of files and bytes."""
    stored = store.sizes(OBJECTS)
    missing: dict[str, tuple[str, FileRecord]] = {
        record.sha256: (name, record) for name, record in records.items() if stored.get(record.sha256) != record.size
    }
    total = sum(record.size for _, record in missing.values())
    done = 0

    def checked(name: str, record: FileRecord) -> Iterator[bytes]:
        nonlocal done
        digest = hashlib.sha256()
        for block in _blocks(run / name, record.size):
            digest.update(block)
            done += len(block)
            progress("sending", done, total)
            yield block
        if digest.hexdigest() != record.sha256:
            raise ArchiveError(f"{run / name} is damaged, or changed while it was archived: its sha256 is another one.")

    for sha256, (name, record) in missing.items():
        store.write(f"{OBJECTS}/{sha256}", checked(name, record))
    return len(missing), total


def _blocks(path: Path, size: int) -> Iterator[bytes]:
    """Read the first bytes of a file.

    Raises:
        ArchiveError: there are fewer.
    """
    left = size
    try:
        with path.open("rb") as file:
            while left and (block := file.read(min(BLOCK, left))):
                left -= len(block)
                yield block
    except OSError as error:
        raise ArchiveError(f"{path} cannot be read: {error.strerror or error}. Try again.") from None
    if left:
        raise ArchiveError(f"{path} changed while it was archived. Try again.")
