"""Pools of idle servers, which are started when needed and replaced when lost."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from grpo_tasks_code.sandbox.host.process import ServerProcess
from grpo_tasks_code.sandbox.inside.confinement import LevelName


class ServerPool:
    """Servers of one kind, up to a number; callers wait while all are busy.

    Args:
        level: Isolation level.
        size: Most servers.
        is_restricted: Whether the servers load RestrictedPython.
        hash_seed: Hash seed, as in `ServerProcess`.
    """

    def __init__(self, level: LevelName, size: int, *, is_restricted: bool = False, hash_seed: int = 0) -> None:
        self.level: LevelName = level
        self._is_restricted, self._hash_seed = is_restricted, hash_seed
        self._size, self._turns = size, threading.Semaphore(size)
        self._idle: list[ServerProcess] = []
        self._busy: set[ServerProcess] = set()
        self._lock = threading.Lock()
        self._is_closed = False

    def grow(self, size: int) -> None:
        """Allow at least this many servers."""
        with self._lock:
            if size > self._size:
                self._turns.release(size - self._size)
                self._size = size

    def add(self, server: ServerProcess) -> None:
        """Add a server that was started elsewhere."""
        self._idle.append(server)

    @contextlib.contextmanager
    def server(self) -> Iterator[ServerProcess]:
        """Reserve an idle server for a block; a server that is marked as lost in it is not used again.

        Raises:
            ServerError: a new server is needed and does not start.
        """
        with self._turns:
            server = self._take()
            try:
                yield server
            except BaseException:
                server.is_lost = True  # it may be busy still: an interrupt, or a bug
                raise
            finally:
                self._give_back(server)

    def _take(self) -> ServerProcess:
        with self._lock:
            if self._idle:
                server = self._idle.pop()  # the last used: its pages are in the caches
                self._busy.add(server)
                return server
        server = ServerProcess(self.level, is_restricted=self._is_restricted, hash_seed=self._hash_seed)
        with self._lock:
            self._busy.add(server)
        return server

    def _give_back(self, server: ServerProcess) -> None:
        with self._lock:
            self._busy.discard(server)
            is_kept = not (server.is_lost or self._is_closed)
            if is_kept:
                self._idle.append(server)
        if not is_kept:
            server.close()

    def close(self) -> None:
        """End all servers; programs that run on them fail."""
        with self._lock:
            self._is_closed = True
            idle, busy = list(self._idle), list(self._busy)
            self._idle.clear()
        for server in busy:
            server.hang_up()
        for server in idle:
            server.close()

    def abandon(self) -> None:
        """Forget all servers in a forked child: they are the parent's."""
        for server in (*self._idle, *self._busy):
            server.abandon()
