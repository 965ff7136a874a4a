"""Runs in storage elsewhere: contents by checksum, and a manifest, written last, with which an archive is complete."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import filelock
from pydantic import AfterValidator, BaseModel, ConfigDict, NonNegativeInt, StringConstraints, ValidationError

from grpo_core.checkpoints import CheckpointError, check_run
from grpo_core.checkpoints.checksums import CHECKSUMS, check_complete
from grpo_core.checkpoints.latest import LINK, point_latest, read_latest
from grpo_core.checkpoints.names import parse_checkpoint, parse_hidden
from grpo_core.launch.storage import BLOCK, ArchiveError, Storage
from grpo_core.tracking import presence
from grpo_sdk.errors import UserError
from grpo_sdk.files import fsync, human_size, sha256_of
from grpo_sdk.records.run_folder import CHECKPOINTS

MANIFEST, OBJECTS = "manifest.json", "objects"

MAX_MANIFEST_BYTES = 64 * 2**20
"""Some 400,000 files; a run has hundreds."""

MARGIN_BYTES = 64 * 2**20
"""Left free on the disk."""

Progress = Callable[[str, int, int], None]
"""Notified of what is done, and of the bytes that are done and planned."""

_NOT_ARCHIVED = {presence.LOCK.as_posix(), presence.NOTE.as_posix(), f"{CHECKPOINTS}/{LINK}"}
"""Files of the process that works in the run's folder, and the link, which the manifest holds."""


def _inside(name: str) -> str:
    if not name.isprintable() or any(part in {"", ".", ".."} or set(part) & set("\\:") for part in name.split("/")):
        raise ValueError("it would not lie in the folder of the run")
    return name


class Content(BaseModel):
    """SHA-256 and bytes of a file."""

    model_config = ConfigDict(frozen=True, strict=True)

    sha256: Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
    size: NonNegativeInt


class Manifest(BaseModel):
    """Files of an archived run; it may come from anyone."""

    model_config = ConfigDict(frozen=True, strict=True)

    version: Literal[1] = 1
    run: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$")]
    created: Annotated[str, StringConstraints(pattern="^[0-9T:+.-]{0,40}$")] = ""
    latest: Annotated[str, StringConstraints(pattern=r"^step_(0|[1-9][0-9]{0,17}|final)$")] | None = None
    files: Mapping[Annotated[str, AfterValidator(_inside), StringConstraints(max_length=1024)], Content]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(content.size for content in self.files.values())

    @property
    def checkpoints(self) -> list[str]:
        """Names of the checkpoints, in the order of their steps."""
        return _sorted(_checkpoints_in(self.files))

    def facts(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        known = {"created": self.created, "checkpoints": self.checkpoints, "latest": self.latest}
        return {**known, "files": len(self.files), "bytes": self.size}


def archive_run(run: Path, url: str, *, keep_latest: int | None, progress: Progress) -> tuple[Manifest, dict[str, Any]]:
    """Archive a run in a folder of its own below a URL; one that goes on, up to what it has written so far.

    Args:
        run: Folder of the run.
        url: Folder of the archive.
        keep_latest: Checkpoints to keep; None keeps all, also those that are no longer in the run.
        progress: Notified of the bytes.

    Returns:
        What the archive holds now, and what was done: `sent_files` and `sent_bytes` of contents; `removed`, checkpoints
        that are not in the archive any more; `left_out`, files that cannot be archived, with the reason.

    Raises:
        UserError: no run, or no such URL.
        ArchiveError: a file changed meanwhile, or the storage refuses.
    """
    check_run(run)
    run = run.resolve()
    storage = Storage(f"{Storage(url).url}/{run.name}")
    if storage.folder and storage.folder.resolve().is_relative_to(run):
        raise UserError(f"{url} lies in the run that it would archive: give a folder elsewhere.")
    before = read_manifest(storage)
    archived = {} if before is None else before.files
    sizes, left_out = _scan(run)
    here, there = _checkpoints_in(sizes), _checkpoints_in(archived)
    latest = read_latest(run / CHECKPOINTS)
    kept = {*_sorted(here | there)[-(keep_latest or 0) :], *([latest] if latest in here else [])}
    wanted = {name: size for name, size in sizes.items() if _checkpoint_of(name) in {None, *kept}}
    contents = _hashed(run, wanted, progress)
    gone = {name: content for name, content in archived.items() if _checkpoint_of(name) in kept - here}
    try:
        manifest = Manifest(
            run=run.name,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            latest=latest if latest in here else None,
            files=dict(sorted({**contents, **gone}.items())),
        )
    except ValidationError:
        raise UserError(f"{run.name!r}: name a run with letters, digits, dots, dashes and underscores.") from None
    files, size = _send(storage, run, contents, progress)
    storage.write(MANIFEST, [manifest.model_dump_json(indent=2).encode()])
    # Only what the old manifest names: another file may be what an archiving elsewhere has just sent.
    used = {content.sha256 for content in manifest.files.values()}
    storage.remove(f"{OBJECTS}/{sha256}" for sha256 in {content.sha256 for content in archived.values()} - used)
    removed = _sorted(there - kept)
    return manifest, {"sent_files": files, "sent_bytes": size, "removed": removed, "left_out": left_out}


def list_runs(url: str) -> dict[str, Manifest | str]:
    """Return the runs in an archive, or the one that the URL is of: URL -> manifest, or why it cannot be restored."""
    storage = Storage(url)
    if storage.folder and not storage.folder.is_dir():
        raise UserError(f"{storage.url}: there is no such folder.")
    folders = [name for name, size in storage.sizes().items() if size is None]
    each = [storage] if OBJECTS in folders else [Storage(f"{storage.url}/{name}") for name in sorted(folders)]
    runs: dict[str, Manifest | str] = {}
    for run in each:
        try:
            manifest = read_manifest(run)
        except ArchiveError as error:
            runs[run.url] = str(error)
            continue
        if manifest is not None or OBJECTS in run.sizes():
            runs[run.url] = manifest or "not complete: archive it again"
    return runs


def restore_run(url: str, folder: Path, *, progress: Progress) -> Path:
    """Restore an archived run; an interrupted restoring goes on after the files that are whole.

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
    storage = Storage(url)
    manifest = read_manifest(storage)
    if manifest is None:
        raise UserError(f"{storage.url}: no archived run. grpo archive --list URL lists those of an archive.")
    target, work = folder / manifest.run, folder / f".{manifest.run}.restoring"
    if os.path.lexists(target):
        raise UserError(f"{target} is there already: give another folder, or move it away.")
    try:
        (work / "run").mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(work / "lock", timeout=0):
            needed = manifest.size
            for path in [path for path in (work / "run").rglob("*") if path.is_symlink() or not path.is_dir()]:
                if path.relative_to(work / "run").as_posix() in manifest.files:
                    needed -= path.lstat().st_size
                else:  # of an older manifest
                    path.unlink()
            if needed + MARGIN_BYTES > (free := shutil.disk_usage(work).free):
                raise ArchiveError(
                    f"{manifest.run} needs {human_size(needed)} more, and {human_size(free)} are free in {folder}."
                )
            done = 0
            for name, content in manifest.files.items():
                for size in _restored(storage, name, content, work):
                    progress("restoring", done + size, manifest.size)
                done += content.size
            if manifest.latest is not None:
                point_latest(work / "run" / CHECKPOINTS, manifest.latest)
            os.replace(work / "run", target)
            fsync(folder)
        shutil.rmtree(work)
    except filelock.Timeout:
        raise UserError(f"{target} is being restored by another process.") from None
    except OSError as error:
        raise ArchiveError(f"{error.filename or folder} cannot be written: {error.strerror or error}.") from None
    return target


def read_manifest(storage: Storage) -> Manifest | None:
    """Read the manifest of an archived run; None if there is none.

    Raises:
        ArchiveError: it is damaged, of a newer version, or names files outside of the run.
    """
    where, content = f"{storage.url}/{MANIFEST}", b""
    try:
        for block in storage.blocks(MANIFEST):
            content += block
            if len(content) > MAX_MANIFEST_BYTES:
                raise ArchiveError(f"{where}: more than {MAX_MANIFEST_BYTES:,} bytes.")
        manifest = Manifest.model_validate_json(content)
    except FileNotFoundError:
        return None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = "/".join(ascii(part)[:80] for part in first["loc"])
        raise ArchiveError(f"{where} is damaged, or of a newer grpo-core: {place}: {first['msg']}.") from None
    folders = {parent.as_posix() for name in manifest.files for parent in Path(name).parents}
    if clash := sorted(folders & manifest.files.keys()):
        raise ArchiveError(f"{where} is damaged: {clash[0]!r} is both a file and a folder.")
    return manifest


def _restored(storage: Storage, name: str, content: Content, work: Path) -> Iterator[int]:
    """Download a file, unless it is there; yields the bytes that are."""
    path, part = work / "run" / name, work / "part"
    if path.is_file() and path.stat().st_size == content.size and sha256_of(path) == content.sha256:
        return
    digest, size = hashlib.sha256(), 0
    try:
        with part.open("wb") as file:
            for block in storage.blocks(f"{OBJECTS}/{content.sha256}"):
                size += len(block)
                if size > content.size:
                    break
                file.write(block)
                digest.update(block)
                yield size
            file.flush()
            os.fsync(file.fileno())
    except FileNotFoundError:
        raise ArchiveError(f"{storage.url} is damaged: the content of {name!r} is missing.") from None
    if size != content.size or digest.hexdigest() != content.sha256:
        raise ArchiveError(
            f"{storage.url} is damaged: the content of {name!r} is not what was archived. If the run is still there, "
            f"delete {OBJECTS}/{content.sha256} in the archive and archive the run again."
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    os.replace(part, path)


def _scan(run: Path) -> tuple[dict[str, int], list[str]]:
    """Return the files of a run with their sizes, and those that are left out, with the reason."""
    sizes: dict[str, int] = {}
    left_out: list[str] = []
    for folder, folders, names in os.walk(run):
        folders[:] = sorted(name for name in folders if parse_hidden(name) is None)
        for path in (Path(folder, name) for name in sorted([*names, *folders]) if parse_hidden(name) is None):
            name, mode = path.relative_to(run).as_posix(), path.lstat().st_mode
            if name in _NOT_ARCHIVED or stat.S_ISDIR(mode):
                continue
            try:
                _inside(name)
            except ValueError:
                left_out.append(f"{ascii(name)[:200]}: a name that not every system has")
                continue
            if stat.S_ISREG(mode):
                sizes[name] = path.lstat().st_size
            else:
                left_out.append(f"{name}: {'a link' if stat.S_ISLNK(mode) else 'a pipe, a socket or a device'}")
    complete = {None, *(each for each in map(_checkpoint_of, sizes) if f"{CHECKPOINTS}/{each}/{CHECKSUMS}" in sizes)}
    return {name: size for name, size in sizes.items() if _checkpoint_of(name) in complete}, left_out


def _hashed(run: Path, sizes: Mapping[str, int], progress: Progress) -> dict[str, Content]:
    """Return checksums: those of checkpoints are known, other files are read, up to the sizes that they had."""
    contents: dict[str, Content] = {}
    for checkpoint in _checkpoints_in(sizes):
        try:
            known = check_complete(run / CHECKPOINTS / checkpoint).files
        except CheckpointError as error:
            raise ArchiveError(f"{error} It was deleted meanwhile, or is damaged: try again.") from None
        contents |= {
            f"{CHECKPOINTS}/{checkpoint}/{name}": Content(sha256=each.sha256, size=each.size)
            for name, each in known.items()
        }
    others = {name: size for name, size in sizes.items() if name not in contents}
    done = 0
    for name, size in others.items():
        digest = hashlib.sha256()
        for block in _blocks(run / name, size):
            digest.update(block)
            done += len(block)
            progress("reading", done, sum(others.values()))
        contents[name] = Content(sha256=digest.hexdigest(), size=size)
    return {name: content for name, content in contents.items() if name in sizes}


def _send(storage: Storage, run: Path, contents: Mapping[str, Content], progress: Progress) -> tuple[int, int]:
    """Send the contents that the archive lacks; the number of files and bytes."""
    stored = storage.sizes(OBJECTS)
    missing = {content: name for name, content in contents.items() if stored.get(content.sha256) != content.size}
    total, done = sum(content.size for content in missing), 0

    def checked(name: str, content: Content) -> Iterator[bytes]:
        nonlocal done
        digest = hashlib.sha256()
        for block in _blocks(run / name, content.size):
            digest.update(block)
            done += len(block)
            progress("sending", done, total)
            yield block
        if digest.hexdigest() != content.sha256:
            raise ArchiveError(f"{run / name} is damaged, or changed while it was archived: its sha256 is another one.")

    for content, name in missing.items():
        storage.write(f"{OBJECTS}/{content.sha256}", checked(name, content))
    return len(missing), total


def _blocks(path: Path, size: int) -> Iterator[bytes]:
    """Read the first bytes of a file."""
    try:
        with path.open("rb") as file:
            while size and (block := file.read(min(BLOCK, size))):
                size -= len(block)
                yield block
    except OSError as error:
        raise ArchiveError(f"{path} cannot be read: {error.strerror or error}. Try again.") from None
    if size:
        raise ArchiveError(f"{path} changed while it was archived. Try again.")


def _checkpoint_of(name: str) -> str | None:
    """Return the checkpoint that a file of a run belongs to."""
    parts = name.split("/")
    is_inside = len(parts) > 2 and parts[0] == CHECKPOINTS and parse_checkpoint(parts[1]) is not None
    return parts[1] if is_inside else None


def _checkpoints_in(files: Iterable[str]) -> set[str]:
    return {name for each in files if (name := _checkpoint_of(each))}


def _sorted(names: set[str]) -> list[str]:
    """Return names of checkpoints in the order of their steps; `step_final` is the last."""
    steps = {name: parse_checkpoint(name) for name in names}
    return sorted(names, key=lambda name: float("inf") if steps[name] == "final" else float(steps[name] or 0))
