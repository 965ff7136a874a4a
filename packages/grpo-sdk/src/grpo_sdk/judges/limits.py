"""Limits of requests that hold over all processes of a machine together: they meet in one SQLite file."""

from __future__ import annotations

import asyncio
import os
import socket
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from grpo_sdk.judges.database import Database

WINDOW_S = 60.0

POLL_S = 0.05
"""Pause before looking again where other processes hold every slot."""

LONGEST_SLEEP_S = 5.0
"""Longest pause before looking again: requests may have had fewer tokens than was assumed."""

LEASE_SLACK_S = 10.0
"""Time beyond a request's limit after which its slot is taken from a process that seems to hang."""

_SCHEMA = """
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


class SharedLimits:
    """Admits requests to one model within its bounds, which all processes that name the same file and model share.

    A request counts from its start for 60 s. Slots of processes that have died are free again.

    Args:
        path: The file.
        name: The model with its address.
        bounds: Its bounds.
        clock: Seconds of a clock that all processes share.
    """

    def __init__(self, path: Path, name: str, bounds: Bounds, *, clock: Callable[[], float] = time.time) -> None:
        self._database = Database(path, _SCHEMA)
        self._name, self._bounds, self._clock = name, bounds, clock
        self._process = f"{socket.gethostname()}/{os.getpid()}"
        self._slots = asyncio.Semaphore(bounds.concurrency)

    @asynccontextmanager
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
        return self._database.run(lambda connection: self._begin(connection, tokens))

    def end(self, number: int, tokens: int) -> None:
        """Return a slot; the request goes on counting for its minute, with these tokens."""
        self._database.run(
            lambda connection: connection.execute(
                "UPDATE requests SET open = 0, tokens = ? WHERE id = ?", (tokens, number)
            )
        )

    def close(self) -> None:
        """Close the file."""
        self._database.close()

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
