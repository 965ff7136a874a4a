from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import orjson

from grpo_sdk import UserError
from grpo_sdk.data import MAX_LINE_BYTES
from grpo_tasks_chess.records import position_key

SUFFIX = ".partial"


def row_key(record: Mapping[str, Any]) -> bytes:
    """Return the key by which rows are equal: the position, and the move if there is one."""
    key = f"{position_key(record['fen'])} {record.get('move', '')}"
    return hashlib.blake2b(key.encode(), digest_size=8).digest()


class Journal:
    """The rows of an unfinished file: `OUT.partial`, a line of settings followed by the rows as JSON lines.

    It is locked against other processes. An incomplete last line is removed.

    Args:
        path: Path of the journal.
        settings: Settings that the rows depend on.

    Attributes:
        rows: Number of rows in the journal.
        next_index: Number of the first row that has not been processed.

    Raises:
        UserError: it holds rows of other settings, another process is writing it, or it cannot be written.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self.path = path
        self.rows = self.next_index = 0
        self._keys: set[bytes] = set()
        self._file = path.open("a+b")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._read(orjson.dumps(settings, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE))
        except BlockingIOError:
            self._file.close()
            raise UserError(f"{path}: another process is making it.") from None
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def add(self, record: Mapping[str, Any]) -> bool:
        """Write a row; return False if it, or an equal one, has been written before."""
        key = row_key(record)
        if record["index"] < self.next_index:
            return False
        self.next_index = record["index"] + 1
        if key in self._keys:
            return False
        self._keys.add(key)
        self._file.write(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))
        self.rows += 1
        return True

    def flush(self) -> None:
        """Flush to the operating system, so that a kill of this process loses nothing."""
        self._file.flush()

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield the rows in order."""
        self._file.flush()
        self._file.seek(0)
        self._file.readline(MAX_LINE_BYTES)
        for line in self._file:
            yield orjson.loads(line)

    def remove(self) -> None:
        """Delete the journal, when the file is finished."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)

    def _read(self, header: bytes) -> None:
        """Read the existing rows, or write the settings to a new journal."""
        self._file.seek(0)
        first = self._file.readline(MAX_LINE_BYTES)
        if not first.endswith(b"\n"):
            self._file.truncate(0)
            self._file.write(header)
            return
        if first != header:
            raise UserError(
                f"{self.path} holds rows of other settings, {first.decode('utf-8', 'replace').strip()[:300]}. Go on "
                "with these, or begin again by --overwrite."
            )
        end = self._file.tell()
        while (line := self._file.readline(MAX_LINE_BYTES)).endswith(b"\n"):
            try:
                record = orjson.loads(line)
                self._keys.add(row_key(record))
                self.next_index = record["index"] + 1
            except (orjson.JSONDecodeError, LookupError, TypeError):
                raise UserError(f"{self.path}:{self.rows + 2} is damaged. Begin again by --overwrite.") from None
            end += len(line)
            self.rows += 1
        self._file.truncate(end)
