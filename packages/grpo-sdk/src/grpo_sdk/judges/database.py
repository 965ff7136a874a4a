"""SQLite files in the cache folder that processes share; a broken one is said once, and made again."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

_LOGGER = logging.getLogger(__name__)

BUSY_S = 30.0
"""Longest wait for another process's write, which takes milliseconds."""

T = TypeVar("T")


class UnusableDatabaseError(Exception):
    """A file of the cache folder cannot be made or written, e.g. since the disk is full."""


class Database:
    """A connection that is made when it is first used, and made again after the file proves broken.

    Args:
        path: The file.
        schema: Statements that make its tables where they are missing.
    """

    def __init__(self, path: Path, schema: str) -> None:
        self.path, self._schema = path, schema
        self._connection: sqlite3.Connection | None = None

    def run(self, action: Callable[[sqlite3.Connection], T]) -> T:
        """Call `action` in a transaction of its own; a broken file is replaced by an empty one, once per call.

        Raises:
            UnusableDatabaseError: the file cannot be made or written.
        """
        try:
            return self._run(action)
        except (sqlite3.Error, OSError) as error:
            raise UnusableDatabaseError(str(error)) from error

    def _run(self, action: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return self._transaction(action)
        except sqlite3.OperationalError:  # locked, full, read-only: making it again would not help
            raise
        except sqlite3.DatabaseError as error:
            _LOGGER.warning("%s is broken (%s): it is made again, and what it held is lost.", self.path, error)
            self.close()
            for name in (self.path.name, f"{self.path.name}-wal", f"{self.path.name}-shm"):
                self.path.with_name(name).unlink(missing_ok=True)
            return self._transaction(action)

    def _transaction(self, action: Callable[[sqlite3.Connection], T]) -> T:
        if self._connection is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(self.path, timeout=BUSY_S, isolation_level=None)
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.executescript(self._schema)
            self._connection = connection
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            result = action(connection)
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")
        return result

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
        self._connection = None
