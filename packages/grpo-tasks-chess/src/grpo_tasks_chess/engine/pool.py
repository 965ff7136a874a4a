from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Self

import chess

from grpo_sdk import InfrastructureError, UserError, inside_worker
from grpo_tasks_chess.engine.finding import FoundEngine, require_engine
from grpo_tasks_chess.engine.process import EngineDiedError, EngineProcess
from grpo_tasks_chess.formats import Line
from grpo_tasks_chess.rules import position

MULTIPV, DEPTH = 5, 10
"""Five lines, as the published data has; at depth 10 they take Stockfish 15.1 about 80 ms of one core."""

TIMEOUT_S = 60.0
"""Time limit of an analysis: hundreds of times that of depth 10, so that only a hanging engine reaches it."""

MAX_DEPTH, MAX_MULTIPV = 60, 218
"""No search to depth 60 ends; no position has more than 218 moves."""

REMEMBERED = 4096
"""Analyses cached by `analyse`, since the completions of a group have the same position."""

_CRASHING = chess.STATUS_TOO_MANY_WHITE_PIECES | chess.STATUS_TOO_MANY_BLACK_PIECES
"""Faults of positions that overrun the move lists of engines: more pieces than a game has."""


class EnginePool:
    """Processes of an engine, started on demand and restarted when they die; safe for threads and after a fork.

    Args:
        engine: Engine; by default the one that `find_engine` finds.
        size: Largest number of processes; by default one per usable core, in a scoring worker one.

    Attributes:
        engine: Engine.
        size: Largest number of processes.

    Raises:
        EngineMissingError: there is no engine.
        UserError: `engine` is not a program, or `size` is below 1.
    """

    def __init__(self, engine: FoundEngine | str | None = None, *, size: int | None = None) -> None:
        if size is not None and size < 1:
            raise UserError(f"size={size}: a pool has at least 1 engine.")
        self.engine = engine if isinstance(engine, FoundEngine) else require_engine(engine)
        self.size = size or (1 if inside_worker() else _usable_cores())
        self._is_closed = False
        self._adopt()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def analyse(
        self, fen: str, *, multipv: int = MULTIPV, depth: int = DEPTH, timeout_s: float = TIMEOUT_S
    ) -> tuple[Line, ...]:
        """Return the best moves of a position, best first; equal for every call, process and number of processes.

        Args:
            fen: FEN of the position; if its game is over, there are no lines.
            multipv: Number of lines; fewer if there are fewer legal moves.
            depth: Search depth in plies.
            timeout_s: Time limit of the search, without waiting for and starting an engine.

        Raises:
            UserError: not a FEN, a position that cannot be played, or a number out of range.
            InfrastructureError: the engine hangs, breaks the protocol, or died twice; the next call starts another.
        """
        board = _checked(fen, multipv=multipv, depth=depth, timeout_s=timeout_s)
        if not any(board.legal_moves):
            return ()
        try:
            with self._lent() as process:
                return process.analyse(board, multipv=multipv, depth=depth, timeout_s=timeout_s)
        except EngineDiedError:  # perhaps killed for memory; a second death is raised
            with self._lent() as process:
                return process.analyse(board, multipv=multipv, depth=depth, timeout_s=timeout_s)

    def close(self) -> None:
        """Kill the engines; those that are searching end after their search."""
        self._is_closed = True
        while self._idle:
            self._idle.pop().close()

    @contextmanager
    def _lent(self) -> Iterator[EngineProcess]:
        """Lend a living process for exclusive use."""
        if self._pid != os.getpid():
            self._adopt()
        slots, idle = self._slots, self._idle
        with slots:
            if self._is_closed:
                raise InfrastructureError("this pool of engines is closed.")
            process = idle.pop() if idle else None
            if process is None or not process.is_alive:
                if process is not None:
                    process.close()
                process = EngineProcess(self.engine.path)
            try:
                yield process
            finally:
                if self._is_closed:
                    process.close()
                elif process.is_alive:
                    idle.append(process)

    def _adopt(self) -> None:
        """Start without processes, in the process that made the pool and in each forked one."""
        self._pid = os.getpid()
        self._slots = threading.BoundedSemaphore(self.size)
        self._idle: deque[EngineProcess] = deque()  # its ends are safe to use from several threads


@lru_cache(maxsize=REMEMBERED)
def analyse(
    fen: str, *, engine: FoundEngine, multipv: int = MULTIPV, depth: int = DEPTH, timeout_s: float = TIMEOUT_S
) -> tuple[Line, ...]:
    """Run `EnginePool.analyse` of a pool shared by the whole process, and cache the results."""
    return _shared(engine).analyse(fen, multipv=multipv, depth=depth, timeout_s=timeout_s)


_shared = lru_cache(maxsize=8)(EnginePool)


def _checked(fen: str, *, multipv: int, depth: int, timeout_s: float) -> chess.Board:
    if not 1 <= depth <= MAX_DEPTH:
        raise UserError(f"depth={depth}: plies are 1 to {MAX_DEPTH}.")
    if not 1 <= multipv <= MAX_MULTIPV:
        raise UserError(f"multipv={multipv}: lines are 1 to {MAX_MULTIPV}.")
    if not timeout_s > 0:
        raise UserError(f"timeout_s={timeout_s} must be above 0 seconds.")
    board = position(fen)
    if board.status() & _CRASHING:
        raise UserError(f"more pieces than a game has: {fen[:100]!r}. Engines cannot search such a position.")
    return board


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
