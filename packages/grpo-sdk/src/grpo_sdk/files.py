"""Reading and writing files that must survive a kill and a full disk, or that come from someone unknown."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import math
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Literal

import orjson

from grpo_sdk.errors import CheckpointError

Purpose = Literal["partial", "replaced", "deleted"]
"""Being written; the old version while a new one takes its name; being deleted."""

MAX_JSON_BYTES = 256 * 2**20
"""Largest JSON file that is read: the row orders of ten million rows; more is not one of ours."""

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""No space left, over the quota, over the limit for one file."""

_RUST_ERRNO = re.compile(r"\(os error ([0-9]{1,4})\)")
"""Form in which an error of the Rust library below safetensors names the system's number."""

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
"""`<fcntl.h>` and `<linux/fs.h>`: relative to the working directory; swap the two names."""


def hidden(path: Path, purpose: Purpose) -> Path:
    """Return the hidden name beside `path` which this process uses."""
    return path.with_name(f".{path.name}.{purpose}-{os.getpid()}")


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_json(path: Path, obj: Mapping[str, Any], *, null_for_nan: bool = False) -> None:
    """Write `obj` to `path`, durably and whole: a reader sees the old file or the new one.

    Args:
        path: Replaced if it exists.
        obj: Keys are strings; integers have at most 64 bits.
        null_for_nan: JSON has no NaN and no infinity. State must come back as it was, so they are refused by
            default; a report may write null for a number that does not exist.

    Raises:
        ValueError: a number is not finite; the message names it.
        CheckpointError: the file cannot be written.
    """
    if not null_for_nan and (where := _not_finite(obj)):
        raise ValueError(f"{path.name}: {where} is not finite, which JSON cannot hold.")
    content = orjson.dumps(obj, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    try:
        replace_file(path, content)
    except OSError as error:
        raise CheckpointError(f"cannot write {path}: {system_words(error)}.") from error


def _not_finite(value: object) -> str:
    """Return the place of the first NaN or infinity, as `.baseline[2]`, or an empty string."""
    if isinstance(value, float):
        return "" if math.isfinite(value) else f"= {value}"
    items: Iterator[tuple[str, object]]
    if isinstance(value, Mapping):
        items = ((f".{key}", item) for key, item in value.items())
    elif isinstance(value, list | tuple):
        items = ((f"[{index}]", item) for index, item in enumerate(value))
    else:
        return ""
    return next((f"{place}{below}" for place, item in items if (below := _not_finite(item))), "")


def read_json(path: Path, what: str, *, max_bytes: int = MAX_JSON_BYTES) -> dict[str, Any]:
    """Return the JSON object in `path`.

    Args:
        path: A regular file; a link, a pipe or a device is refused, since whoever sent the folder chose it.
        what: Meaning of the file, for errors, as "the summary".
        max_bytes: A larger file is refused.

    Raises:
        CheckpointError: it is missing, not readable, too large, not JSON, or not an object.
    """
    try:
        content = read_regular(path, max_bytes)
    except FileNotFoundError:
        raise CheckpointError(f"{what} is missing: there is no {path}.") from None
    except OSError as error:
        raise CheckpointError(f"{what} cannot be read: {system_words(error)}.") from None
    try:
        value = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise CheckpointError(f"{what} is damaged: {path} is not JSON: {error}.") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{what} is damaged: {path} holds a {type(value).__name__}, not an object.")
    return value


def read_regular(path: Path, max_bytes: int) -> bytes:
    """Return the content of a regular file.

    Raises:
        OSError: it cannot be read, is something other than a regular file, or is larger than `max_bytes`.
    """
    if not stat.S_ISREG(path.lstat().st_mode):  # before opening: a pipe would block
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    with path.open("rb") as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise OSError(errno.EOVERFLOW, f"larger than {max_bytes:,} bytes", str(path))
    return content


def replace_file(path: Path, content: bytes | Iterable[bytes]) -> None:
    """Put `content` at `path`, durably; whoever looks sees the old file or the whole new one.

    Processes of several machines may do so at once.

    Raises:
        OSError: it cannot be written.
    """
    partial = hidden(path, "partial")
    partial = partial.with_name(f"{partial.name}-{secrets.token_hex(4)}")
    try:
        with partial.open("xb") as file:
            file.writelines([content] if isinstance(content, bytes) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        remove(partial)
        raise
    fsync(path.parent)


def fsync(path: Path) -> None:
    """Wait until a file's content, or a folder's list of names, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def tree(folder: Path) -> tuple[dict[str, os.stat_result], list[Path]]:
    """Return the regular files below `folder` by relative name, and its folders, outer before inner.

    Raises:
        CheckpointError: there is a link, a pipe, a socket or a device, which no checkpoint holds.
        OSError: a folder cannot be read.
    """
    files: dict[str, os.stat_result] = {}
    folders = [folder]
    for current in folders:  # grows while it is walked
        with os.scandir(current) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                path, status = current / entry.name, entry.stat(follow_symlinks=False)
                relative = path.relative_to(folder).as_posix()
                if stat.S_ISDIR(status.st_mode):
                    folders.append(path)
                elif stat.S_ISREG(status.st_mode):
                    files[relative] = status
                else:
                    kind = "a link" if stat.S_ISLNK(status.st_mode) else "a pipe, a socket or a device"
                    raise CheckpointError(f"{folder}: {relative!r} is {kind}; a checkpoint holds only plain files.")
    return files, folders


def put_in_place(new: Path, target: Path, aside: Path) -> None:
    """Rename the folder `new` to `target`; what was there ends up at `new` or at `aside`.

    Where the file system can swap two names, `target` exists at every moment. Elsewhere (NFS, macOS) the old one
    stands at `aside` between two renames, where a reader must look for it.
    """
    if not os.path.lexists(target):
        os.rename(new, target)
    elif not exchange(new, target):
        try:
            os.rename(target, aside)
            os.rename(new, target)
        except BaseException:
            if not os.path.lexists(target) and os.path.lexists(aside):
                os.rename(aside, target)
            raise


@contextmanager
def written_whole(target: Path) -> Iterator[Path]:
    """Yield an empty folder that becomes `target` when the block ends without an exception; an older one is replaced.

    After an exception or a kill, `target` is what it was.

    Raises:
        OSError: the folder cannot be written.
    """
    partial, aside = hidden(target, "partial"), hidden(target, "replaced")
    try:
        remove(partial)
        partial.mkdir(parents=True)
        yield partial
        put_in_place(partial, target, aside)
    finally:  # the replaced one, if any, stands at one of the two
        remove(partial)
        remove(aside)


def exchange(one: Path, other: Path) -> bool:
    """Swap two names in one step; False where the system or the file system cannot."""
    renameat2 = _renameat2()
    return (
        renameat2 is not None
        and renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0
    )


@cache
def _renameat2() -> Any:
    return getattr(ctypes.CDLL(None), "renameat2", None)  # absent outside Linux


def remove(path: Path) -> None:
    """Remove a file, a link or a folder with all that it holds, as far as the system lets us."""
    if path.is_symlink() or not path.is_dir():
        try:
            path.unlink(missing_ok=True)
        except OSError:
            return
    else:
        shutil.rmtree(path, ignore_errors=True)


def disk_full_reason(error: BaseException) -> str:
    """Return the system's words if `error`, or what caused it, is a full disk, a quota or a file size limit."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        number = cause.errno if isinstance(cause, OSError) else None
        if number is None and (match := _RUST_ERRNO.search(str(cause))):
            number = int(match[1])
        if number in _FULL:
            return os.strerror(number)
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return ""


def system_words(error: OSError) -> str:
    """Return the system's message with the file, without the number that `str(error)` begins with."""
    words = error.strerror or str(error)
    return f"{words}: {error.filename}" if error.filename else words


def human_size(size: int) -> str:
    """Return a number of bytes as a person reads it, as `1.5 GiB`."""
    value = float(size)
    for unit in ("bytes", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.{0 if unit == 'bytes' else 1}f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"
