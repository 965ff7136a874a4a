"""Following a log that another process writes, resumes, replaces or removes: each line is read once."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import orjson

from grpo_core.tracking.jsonl import MAX_LINE_BYTES

READ_BYTES = 4 << 20
"""Amount that one `read` takes from a log, so that a long one does not block: about 1,500 steps."""

CHECKED_BYTES = 256
"""Bytes before the position that are compared, to notice that a resumed run has cut its log and written it again."""


@dataclass(slots=True)
class NewLines:
    """What was appended to a log.

    Attributes:
        objects: The new lines, in order.
        restarted: Whether the log is another one than before: `objects` begin anew.
        more: Whether there is more to read now.
        corrupt: Number of lines that were no JSON objects and were skipped.
    """

    objects: list[dict[str, Any]] = field(default_factory=list)
    restarted: bool = False
    more: bool = False
    corrupt: int = 0


class FollowedLog:
    """A JSONL log that is read as it grows.

    Args:
        path: The log; it may not be there yet, or not any more.
        tail_bytes: Read so many bytes from the end at most, and skip what is before them; None reads everything.
    """

    def __init__(self, path: Path, tail_bytes: int | None = None) -> None:
        self.path, self._tail_bytes = path, tail_bytes
        self._inode, self._position, self._before = (0, 0), 0, b""

    def read(self) -> NewLines:
        """Read what was appended since the last call, up to `READ_BYTES`; nothing where there is no log.

        Raises:
            OSError: the log is there, and cannot be read.
        """
        found = NewLines()
        try:
            file = self.path.open("rb")
        except (FileNotFoundError, NotADirectoryError):
            return found
        with file:
            size = self._check_same(file, found)
            if self._tail_bytes is not None and size - self._position > self._tail_bytes:
                self._position = size - self._tail_bytes
                file.seek(self._position)
                self._position += len(file.readline())  # the rest of a line that began before
            file.seek(self._position)
            end = self._position + READ_BYTES
            while self._position < end and (line := file.readline(MAX_LINE_BYTES + 1)).endswith(b"\n"):
                self._position += len(line)
                self._before = line[-CHECKED_BYTES:]
                self._add(line, found)
            found.more = self._position >= end
        return found

    def _check_same(self, file: IO[bytes], found: NewLines) -> int:
        """Begin anew if the file is not the one that was read before; return its size."""
        status = os.fstat(file.fileno())
        inode = (status.st_dev, status.st_ino)
        is_same = inode == self._inode and status.st_size >= self._position
        if is_same and self._before:
            file.seek(self._position - len(self._before))
            is_same = file.read(len(self._before)) == self._before
        if not is_same:
            found.restarted = self._position > 0
            self._inode, self._position, self._before = inode, 0, b""
        return status.st_size

    def _add(self, line: bytes, found: NewLines) -> None:
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError:
            value = None
        if isinstance(value, dict):
            found.objects.append(value)
        else:
            found.corrupt += 1
