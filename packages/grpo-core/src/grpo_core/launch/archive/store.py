"""A folder in an object store or a file system, by its URL."""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from grpo_core.checkpoints.files import replace_file
from grpo_core.errors import ExitCode, GrpoError, UserError, near_match
from grpo_core.paths import kind_of, user_path
from grpo_core.tracking.base import without_secrets

SCHEMES = {"file": "", "s3": "s3", "gs": "gcs"}
"""Scheme of a URL -> extra of grpo-core that it needs."""

BLOCK = 16 * 2**20
"""Bytes that are sent or read at once."""

UNAUTHORIZED = 401
"""HTTP status of Google's answer to a request without credentials."""

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.+)", re.DOTALL)


class ArchiveError(GrpoError):
    """Storage that cannot be reached, that refuses, or whose content is not what was archived."""

    exit_code = ExitCode.FAILED


class Store:
    """A folder of files, each of which is there as a whole or not at all.

    Args:
        url: `s3://BUCKET/FOLDER`, `gs://BUCKET/FOLDER` or `file:FOLDER`.

    Attributes:
        url: The URL.

    Raises:
        UserError: it is none of these, or the package that it needs is missing.
    """

    def __init__(self, url: str) -> None:
        match = _URL.fullmatch(url)
        if match is None or match[1].lower() not in SCHEMES:
            hint = near_match(match[1], SCHEMES) if match else ""
            raise UserError(
                f"{without_secrets(url)[:200]!r}: give s3://BUCKET/FOLDER, gs://BUCKET/FOLDER or file:FOLDER.{hint}"
            )
        scheme, rest = match[1].lower(), match[2].removeprefix("//").rstrip("/")
        if not url.isprintable() or (any(part == ".." for part in rest.split("/")) and scheme != "file"):
            raise UserError(f"{ascii(url)[:200]}: not the URL of a folder.")
        if not rest.partition("/")[0] and scheme != "file":
            raise UserError(f"{url[:200]!r} names no bucket: give {scheme}://BUCKET/FOLDER.")
        if scheme != "file" and ("@" in rest or "?" in rest):
            raise UserError(
                f"{scheme}://…: a bucket has no @ and no ?. Keys don't belong into a URL: they are read from the "
                "environment, or from the files of the provider's own tools."
            )
        self.url = f"{scheme}:{rest}" if scheme == "file" else f"{scheme}://{rest}"
        self._scheme = scheme
        self._root = os.path.abspath(user_path(rest, "file:")) if scheme == "file" else rest
        if scheme == "file" and (kind := kind_of(Path(self._root))) not in ("", "a folder"):
            raise UserError(f"{self.url}: it is {kind}; give a folder.")
        self._fs = _file_system(scheme)

    def is_below(self, folder: Path) -> bool:
        """Whether it lies in a folder of this machine."""
        return self._scheme == "file" and Path(self._root).resolve().is_relative_to(folder)

    def check_there(self) -> None:
        """Refuse a folder of this machine that is missing; in a bucket, a folder is there once it has files.

        Raises:
            UserError: it is missing.
        """
        if self._scheme == "file" and not os.path.isdir(self._root):
            raise UserError(f"{self.url}: there is no such folder.")

    def inside(self, name: str) -> Store:
        """Return a folder of this one."""
        return Store(f"{self.url}/{name}")

    @property
    def name(self) -> str:
        """Last part of the URL."""
        return self._root.rpartition("/")[2]

    def folders(self) -> list[str]:
        """Return the names of the folders in it; none if it does not exist."""
        with self._reported("cannot be listed"):
            try:
                entries = self._fs.ls(self._root, detail=True)
            except (FileNotFoundError, NotADirectoryError):
                return []
            return sorted(_last(entry["name"]) for entry in entries if entry["type"] == "directory")

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the files in one of its folders with their sizes in bytes."""
        with self._reported("cannot be listed"):
            try:
                entries = self._fs.ls(f"{self._root}/{folder}", detail=True)
            except FileNotFoundError:
                return {}
            return {_last(entry["name"]): int(entry["size"] or 0) for entry in entries if _is_plain(entry)}

    def read(self, name: str, max_bytes: int) -> bytes | None:
        """Return the content of a file; None if there is none.

        Raises:
            ArchiveError: it is larger than `max_bytes`, a link or a device, or cannot be read.
        """
        content = b""
        try:
            for block in self.blocks(name):
                content += block
                if len(content) > max_bytes:
                    raise ArchiveError(f"{self.url}/{name}: more than {max_bytes:,} bytes.")
        except FileNotFoundError:
            return None
        return content

    def blocks(self, name: str, start: int = 0) -> Iterator[bytes]:
        """Read a file from a place on.

        Raises:
            FileNotFoundError: there is none.
            ArchiveError: it is a link or a device, or cannot be read.
        """
        with self._reported(f"{name} cannot be read"):
            path = f"{self._root}/{name}"
            if not _is_plain(self._fs.info(path)):
                raise ArchiveError(f"{self.url}/{name}: a link or a device, not a file.")
            with self._fs.open(path, "rb", **({} if self._scheme == "file" else {"block_size": BLOCK})) as file:
                file.seek(start)
                while block := file.read(BLOCK):
                    yield bytes(block)

    def write(self, name: str, blocks: Iterable[bytes]) -> None:
        """Write a file, replacing one that is there; a reader sees the old one or the whole new one.

        Raises:
            ArchiveError: the storage refuses.
        """
        with self._reported(f"{name} cannot be written", is_written=True):
            path = f"{self._root}/{name}"
            if self._scheme == "file":
                os.makedirs(os.path.dirname(path), exist_ok=True)
                replace_file(Path(path), blocks)
                return
            file = self._fs.open(path, "wb", block_size=BLOCK)
            try:
                for block in blocks:
                    file.write(block)
            except BaseException:
                file.closed = True  # closing it would write what has been sent so far
                with contextlib.suppress(Exception):  # the reason to be told is the first one
                    file.discard()
                raise
            file.close()

    def remove(self, names: Iterable[str]) -> None:
        """Delete files."""
        with self._reported("cannot be deleted from"):
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    self._fs.rm_file(f"{self._root}/{name}")

    @contextlib.contextmanager
    def _reported(self, what: str, *, is_written: bool = False) -> Iterator[None]:
        """Turn the many errors of storage libraries into one line, without keys."""
        try:
            yield
        except GrpoError:
            raise
        except FileNotFoundError as error:
            if not is_written:
                raise
            raise ArchiveError(f"{self.url}: {what}: there is no such bucket or folder.") from error
        except Exception as error:  # each provider's library has a hierarchy of its own
            name = type(error).__name__
            is_anonymous = self._scheme == "gs" and getattr(error, "code", None) == UNAUTHORIZED
            if is_anonymous or name in ("NoCredentialsError", "PartialCredentialsError"):
                raise UserError(f"{self.url}: no credentials: {_LOGIN[self._scheme]}.") from None
            text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            reason = " ".join(without_secrets(text).split())[:300] or name
            raise ArchiveError(f"{self.url}: {what}: {reason}") from error


_LOGIN = {
    "s3": "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run aws configure",
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS, or run gcloud auth application-default login",
    "file": "the folder is not readable",
}


def _file_system(scheme: str) -> Any:
    import fsspec

    try:
        kind = fsspec.get_filesystem_class(scheme)
    except ImportError:
        raise UserError(f"{scheme}:// needs a package: pip install 'grpo-core[{SCHEMES[scheme]}]'") from None
    # gcsfs logs, with tracebacks, what it also raises, and a warning at each attempt to find out a bucket's kind.
    logging.getLogger("gcsfs").setLevel(logging.CRITICAL)
    # What another process has written since must be seen.
    options = {"skip_instance_cache": True, "use_listings_cache": False}
    return kind(**({} if scheme == "file" else options))


def _is_plain(entry: dict[str, Any]) -> bool:
    return entry.get("type") == "file" and not entry.get("islink", False)


def _last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]
