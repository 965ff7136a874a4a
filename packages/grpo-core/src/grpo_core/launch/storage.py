"""A folder in an object store or a file system, by its URL; each file in it is there as a whole or not at all."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from grpo_core.tracking.base import without_secrets
from grpo_sdk.errors import ExitCode, GrpoError, UserError, near_match
from grpo_sdk.files import replace_file
from grpo_sdk.paths import kind_of, user_path

EXTRAS = {"file": "", "s3": "s3", "gs": "gcs"}
"""Scheme of a URL -> extra of grpo-core that it needs."""

BLOCK = 16 * 2**20
"""Bytes that are sent or read at once."""

_LOGIN = {
    "s3": "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run aws configure",
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS, or run gcloud auth application-default login",
}


class ArchiveError(GrpoError):
    """Storage that cannot be reached, that refuses, or whose content is not what was archived."""

    exit_code = ExitCode.FAILED


class Storage:
    """A folder in storage.

    Args:
        url: `s3://BUCKET/FOLDER`, `gs://BUCKET/FOLDER` or `file:FOLDER`.

    Attributes:
        url: The URL.
        folder: The folder on this machine; None in a bucket.

    Raises:
        UserError: it is none of these, or the package that it needs is missing.
    """

    def __init__(self, url: str) -> None:
        scheme, _, rest = url.partition(":")
        scheme, rest = scheme.lower(), rest.removeprefix("//").rstrip("/")
        if scheme not in EXTRAS or not url.isprintable():
            raise UserError(
                f"{ascii(without_secrets(url))[:200]}: give s3://BUCKET/FOLDER, gs://BUCKET/FOLDER or file:FOLDER."
                f"{near_match(scheme, EXTRAS)}"
            )
        if scheme == "file":
            self.folder: Path | None = Path(os.path.abspath(user_path(rest, "file:")))
            if (kind := kind_of(self.folder)) not in ("", "a folder"):
                raise UserError(f"file:{rest}: it is {kind}; give a folder.")
        elif not rest or rest.startswith("/") or ".." in rest.split("/"):
            raise UserError(f"{url[:200]!r} names no bucket: give {scheme}://BUCKET/FOLDER.")
        elif "@" in rest or "?" in rest:
            raise UserError(
                f"{scheme}://…: a bucket has no @ and no ?. Keys don't belong into a URL: they are read from the "
                "environment, or from the files of the provider's own tools."
            )
        else:
            self.folder = None
        self.url = f"{scheme}:{rest}" if self.folder else f"{scheme}://{rest}"
        self._scheme, self._root = scheme, str(self.folder or rest)
        self._fs = _file_system(scheme)

    def sizes(self, folder: str = "") -> dict[str, int | None]:
        """Return the names in it, or in a folder of it: files with their sizes in bytes, folders with None."""
        with self._reported("cannot be listed"):
            try:
                entries = self._fs.ls(f"{self._root}/{folder}".rstrip("/"), detail=True)
            except (FileNotFoundError, NotADirectoryError):
                return {}
            kept = [entry for entry in entries if entry["type"] == "directory" or _is_plain(entry)]
            names = [entry["name"].rstrip("/").rpartition("/")[2] for entry in kept]
            return {name: entry["size"] if _is_plain(entry) else None for name, entry in zip(names, kept, strict=True)}

    def blocks(self, name: str) -> Iterator[bytes]:
        """Read a file.

        Raises:
            FileNotFoundError: there is none.
            ArchiveError: it is a link or a device, or cannot be read.
        """
        with self._reported(f"{name} cannot be read"):
            path = f"{self._root}/{name}"
            if not _is_plain(self._fs.info(path)):
                raise ArchiveError(f"{self.url}/{name}: a link or a device, not a file.")
            with self._fs.open(path, "rb", **({} if self.folder else {"block_size": BLOCK})) as file:
                while block := file.read(BLOCK):
                    yield bytes(block)

    def write(self, name: str, blocks: Iterable[bytes]) -> None:
        """Write a file, replacing one that is there; a reader sees the old one or the whole new one."""
        path = f"{self._root}/{name}"
        with self._reported(f"{name} cannot be written"), contextlib.ExitStack() as undo:
            if self.folder:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                replace_file(Path(path), blocks)
                return
            try:
                file = self._fs.open(path, "wb", block_size=BLOCK)
                undo.callback(_discard, file)
                for block in blocks:
                    file.write(block)
                undo.pop_all()
                file.close()
            except FileNotFoundError as error:
                raise ArchiveError(f"{self.url}: there is no such bucket.") from error

    def remove(self, names: Iterable[str]) -> None:
        """Delete files."""
        with self._reported("cannot be deleted from"):
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    self._fs.rm_file(f"{self._root}/{name}")

    @contextlib.contextmanager
    def _reported(self, what: str) -> Iterator[None]:
        """Turn the many errors of storage libraries into one line, without keys."""
        try:
            yield
        except (GrpoError, FileNotFoundError):
            raise
        except Exception as error:  # each provider's library has a hierarchy of its own
            name = type(error).__name__
            is_anonymous = self._scheme == "gs" and getattr(error, "code", None) == 401
            if is_anonymous or name in ("NoCredentialsError", "PartialCredentialsError"):
                raise UserError(f"{self.url}: no credentials: {_LOGIN[self._scheme]}.") from None
            text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            reason = " ".join(without_secrets(text).split())[:300] or name
            raise ArchiveError(f"{self.url}: {what}: {reason}") from error


def _file_system(scheme: str) -> Any:
    import fsspec

    try:
        kind = fsspec.get_filesystem_class(scheme)
    except ImportError:
        raise UserError(f"{scheme}:// needs a package: pip install 'grpo-core[{EXTRAS[scheme]}]'") from None
    # gcsfs logs, with tracebacks, what it also raises, and a warning at each attempt to find out a bucket's kind.
    logging.getLogger("gcsfs").setLevel(logging.CRITICAL)
    # What another process has written since must be seen.
    return kind(**({} if scheme == "file" else {"skip_instance_cache": True, "use_listings_cache": False}))


def _is_plain(entry: dict[str, Any]) -> bool:
    return entry.get("type") == "file" and not entry.get("islink", False)


def _discard(file: Any) -> None:
    file.closed = True  # closing it would write what has been sent so far
    with contextlib.suppress(Exception):  # the reason to be told is the first one
        file.discard()
