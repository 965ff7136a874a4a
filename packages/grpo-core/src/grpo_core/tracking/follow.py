"""Following a log that another process writes, resumes, replaces or removes: each line is read once."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from typing import IO, Any

from grpo_sdk.records.jsonl import MAX_LINE_BYTES, json_object, read_lines

READ_BYTES = 4 << 20
"""Amount that one `read` takes from a log, so that a long one does not block: about 1,500 steps."""

CHECKED_BYTES = 256
"""Bytes before the position that are compared, to notice that a resumed run has cut its log and written it again."""


class FollowedLog:
    """A JSONL log that is read as it grows.

    Args:
        path: The log; it may not be there yet, or not any more.
        add: Called with each new line's object; a KeyError, TypeError or ValueError says that it is damaged.
        forget: Called where the log is another one than before: its lines come anew.
        tail_bytes: Read so many bytes from the end at most, and skip what is before them; None reads everything.
    """

    def __init__(
        self,
        path: Path,
        add: Callable[[dict[str, Any]], None],
        forget: Callable[[], None],
        tail_bytes: int | None = None,
    ) -> None:
        self.path, self._add, self._forget, self._tail_bytes = path, add, forget, tail_bytes
        self._inode, self._position, self._before = (0, 0), 0, b""
        self._first_damaged, self._n_damaged = 0, 0

    @property
    def problem(self) -> str:
        """The damaged lines, which are left out; empty if there are none."""
        if not self._n_damaged:
            return ""
        more = f" and {self._n_damaged - 1} more lines are" if self._n_damaged > 1 else " is"
        return f"{self.path.name}:{self._first_damaged}{more} damaged and left out"

    def read(self) -> bool:
        """Read what was appended since the last call, up to `READ_BYTES`; nothing where there is no log.

        Returns:
            Whether there is more to read now.

        Raises:
            OSError: the log is there, and cannot be read.
        """
        try:
            file = self.path.open("rb")
        except (FileNotFoundError, NotADirectoryError):
            return False
        with file:
            size = self._check_same(file)
            if self._tail_bytes is not None and size - self._position > self._tail_bytes:
                self._position = size - self._tail_bytes
                file.seek(self._position)
                self._position += len(file.readline())  # the rest of a line that began before
            file.seek(self._position)
            end = self._position + READ_BYTES
            while self._position < end and (line := file.readline(MAX_LINE_BYTES + 1)).endswith(b"\n"):
                try:
                    self._add(json_object(line))
                except (KeyError, TypeError, ValueError):
                    self._n_damaged += 1
                    self._first_damaged = self._first_damaged or 1 + self._lines_before()
                self._position += len(line)
                self._before = line[-CHECKED_BYTES:]
            return self._position >= end

    def _check_same(self, file: IO[bytes]) -> int:
        """Begin anew if the file is not the one that was read before; return its size."""
        status = os.fstat(file.fileno())
        inode = (status.st_dev, status.st_ino)
        is_same = inode == self._inode and status.st_size >= self._position
        if is_same and self._before:
            file.seek(self._position - len(self._before))
            is_same = file.read(len(self._before)) == self._before
        if not is_same:
            if self._position > 0:
                self._forget()
            self._first_damaged, self._n_damaged = 0, 0
            self._inode, self._position, self._before = inode, 0, b""
        return status.st_size

    def _lines_before(self) -> int:
        """Number of the lines before the position."""
        starts = (start for start, _ in read_lines(self.path, bytes, []))
        return sum(1 for _ in takewhile(lambda start: start < self._position, starts))
