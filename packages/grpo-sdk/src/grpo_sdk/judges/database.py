"""What the processes of a machine share of judges, in SQLite files of the cache folder: limits, and verdicts.

A broken file is said once, and made again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import socket
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import psutil

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
            # Only one thread uses it, and any may collect it.
            connection = sqlite3.connect(self.path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
            try:
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute("PRAGMA synchronous=NORMAL")
                connection.executescript(self._schema)
            except BaseException:
                connection.close()
                raise
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

    def __del__(self) -> None:  # from Python 3.13 on sqlite3 warns of a connection that nobody has closed
        self.close()


MAX_REASON_CHARS = 1000

_VERDICTS = """
CREATE TABLE IF NOT EXISTS verdicts (
    key BLOB PRIMARY KEY, value REAL NOT NULL, reason TEXT NOT NULL, created REAL NOT NULL
) WITHOUT ROWID;
"""


class VerdictCache(Database):
    """Verdicts by what decides them.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, _VERDICTS)

    def get(self, key: bytes) -> tuple[float, str] | None:
        """Value and reason of a verdict; None where there is none."""
        row = self.run(
            lambda connection: connection.execute("SELECT value, reason FROM verdicts WHERE key = ?", (key,)).fetchone()
        )
        if row is None or not isinstance(row[0], float) or not (math.isfinite(row[0]) and 0 <= row[0] <= 1):
            return None
        return row[0], str(row[1])

    def put(self, key: bytes, value: float, reason: str) -> None:
        """Keep a verdict."""
        content = (key, value, reason[:MAX_REASON_CHARS], time.time())
        self.run(lambda connection: connection.execute("INSERT OR REPLACE INTO verdicts VALUES (?, ?, ?, ?)", content))


WINDOW_S = 60.0

POLL_S = 0.05
"""Pause before looking again where other processes hold every slot."""

LONGEST_SLEEP_S = 5.0
"""Longest pause before looking again: requests may have had fewer tokens than was assumed."""

LEASE_SLACK_S = 10.0
"""Time beyond a request's limit after which its slot is taken from a process that seems to hang."""

_REQUESTS = """
CREATE TABLE IF NOT EXISTS requests (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, process TEXT NOT NULL, started REAL NOT NULL, tokens INTEGER NOT NULL,
    open INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS by_name ON requests (name, started);
"""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of the requests to one model.

    Attributes:
        concurrency: Requests in flight.
        requests_per_minute: Requests begun within any 60 s; None is no bound.
        tokens_per_minute: Tokens of the requests begun within any 60 s; None is no bound.
        lease_s: Longest time of one request.
    """

    concurrency: int
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    lease_s: float = 60.0


class SharedLimits(Database):
    """Admits requests to one model within its bounds, which all processes that name the same file and model share.

    A request counts from its start for 60 s. Slots of processes that have died are free again.

    Args:
        path: The file.
        name: The model with its address.
        bounds: Its bounds.
        clock: Seconds of a clock that all processes share.
    """

    def __init__(self, path: Path, name: str, bounds: Bounds, *, clock: Callable[[], float] = time.time) -> None:
        super().__init__(path, _REQUESTS)
        self._name, self._bounds, self._clock = name, bounds, clock
        self._process = f"{socket.gethostname()}/{os.getpid()}"
        self._slots = asyncio.Semaphore(bounds.concurrency)

    @contextlib.asynccontextmanager
    async def admitted(self, tokens: int) -> AsyncIterator[int]:
        """Wait for a slot and hold it; yields its number.

        Args:
            tokens: Estimate of the request's tokens, prompt and reply; `end` may be called again with their number.
        """
        async with self._slots:
            while isinstance(begun := self.begin(tokens), float):
                await asyncio.sleep(min(begun, LONGEST_SLEEP_S))
            try:
                yield begun
            finally:
                self.end(begun, tokens)

    def begin(self, tokens: int) -> int | float:
        """Take a slot: its number, or the seconds (a float) after which to try again."""
        return self.run(lambda connection: self._begin(connection, tokens))

    def end(self, number: int, tokens: int) -> None:
        """Return a slot; the request goes on counting for its minute, with these tokens."""
        self.run(
            lambda connection: connection.execute(
                "UPDATE requests SET open = 0, tokens = ? WHERE id = ?", (tokens, number)
            )
        )

    def _begin(self, connection: sqlite3.Connection, tokens: int) -> int | float:
        now, bounds = self._clock(), self._bounds
        connection.execute("DELETE FROM requests WHERE open = 0 AND started <= ?", (now - WINDOW_S,))
        in_flight = connection.execute(
            "SELECT id, process, started FROM requests WHERE name = ? AND open = 1", (self._name,)
        ).fetchall()
        if len(in_flight) >= bounds.concurrency:
            stale = [(number,) for number, process, started in in_flight if self._is_stale(process, started, now)]
            connection.executemany("UPDATE requests SET open = 0 WHERE id = ?", stale)
            if len(in_flight) - len(stale) >= bounds.concurrency:
                return POLL_S
        recent = connection.execute(
            "SELECT started, tokens FROM requests WHERE name = ? AND started > ? ORDER BY started",
            (self._name, now - WINDOW_S),
        ).fetchall()
        wait_s = _wait_s(recent, tokens, bounds, now)
        if wait_s > 0:
            return wait_s
        cursor = connection.execute(
            "INSERT INTO requests (name, process, started, tokens, open) VALUES (?, ?, ?, ?, 1)",
            (self._name, self._process, now, tokens),
        )
        return int(cursor.lastrowid or 0)

    def _is_stale(self, process: str, started: float, now: float) -> bool:
        host, _, pid = process.rpartition("/")
        if host == self._process.rpartition("/")[0] and not psutil.pid_exists(int(pid)):
            return True
        return now - started > self._bounds.lease_s + LEASE_SLACK_S


def _wait_s(recent: list[tuple[float, int]], tokens: int, bounds: Bounds, now: float) -> float:
    """Seconds until one more request of `tokens` fits; 0 where it does.

    A request of more tokens than a minute has waits until it is alone.
    """
    wait_s = 0.0
    limit = bounds.requests_per_minute
    if limit is not None and len(recent) >= limit:
        wait_s = recent[len(recent) - limit][0] + WINDOW_S - now
    if bounds.tokens_per_minute is not None:
        total = sum(count for _, count in recent)
        for started, count in recent:
            if total + tokens <= bounds.tokens_per_minute:
                break
            total -= count
            wait_s = max(wait_s, started + WINDOW_S - now)
    return max(wait_s, 1e-3) if wait_s > 0 else 0.0
