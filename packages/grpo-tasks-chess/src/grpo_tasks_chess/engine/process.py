from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

import chess
import chess.engine

from grpo_sdk import InfrastructureError, inside_worker, refuse_at_import
from grpo_tasks_chess.engine import launch
from grpo_tasks_chess.formats import Line, to_pawns

T = TypeVar("T")

HASH_MIB = 16
"""Stockfish's default; fixed, because the size of the table affects the result of a search."""

START_TIMEOUT_S = 10.0
"""Time limit of the start; an engine loads its network in a third of a second, on a busy machine much slower."""

RETRY_AFTER_S = 60.0
"""Time for which an engine that could not be started is not started again, so that only one completion waits for it."""

CLOSE_TIMEOUT_S = 5.0
"""Time limit for a killed process to end."""

# Unexpected output of an engine is logged only if the user configures logging.
chess.engine.LOGGER.addHandler(logging.NullHandler())


_failed_starts: dict[str, tuple[float, str]] = {}
"""Engine -> when its last start failed, and why."""


class EngineDiedError(InfrastructureError):
    """The engine's process ended while it was needed."""


class EngineProcess:
    """A running engine with one thread, a fixed table and no memory of earlier positions, so that it is deterministic.

    It ends with this process: at exit by `atexit`, else by the parent-death signal (Linux) and the end of its input.
    Ctrl-C does not reach it. Any thread may use it, one call at a time.

    python-chess' own `SimpleEngine` has no time limit for a search to a depth, and its thread keeps a process alive
    that forgot to close it; therefore its protocol runs on our own event loop.

    Args:
        path: Path of the program.
        hash_mib: Size of its table, in MiB.
        start_timeout_s: Time limit of the start.

    Attributes:
        path: Path of the program.
        name: Name of the engine.

    Raises:
        InfrastructureError: it cannot be started, or does not speak UCI, now or in the last `RETRY_AFTER_S`.
        UserError: a task file is being imported.
    """

    def __init__(self, path: str, *, hash_mib: int = HASH_MIB, start_timeout_s: float = START_TIMEOUT_S) -> None:
        refuse_at_import("the engine")
        failed_at, problem = _failed_starts.get(path, (-math.inf, ""))
        if time.monotonic() - failed_at < RETRY_AFTER_S:
            raise InfrastructureError(problem)
        self.path = path
        self._loop = _event_loop()
        self._has_own_group = not inside_worker()  # else it stays in the worker's group, which is killed as a whole
        command = [sys.executable, "-I", "-S", launch.__file__, str(os.getpid()), path]
        starting = _Protocol.popen(command, setpgrp=self._has_own_group, stderr=subprocess.DEVNULL)
        try:
            self._transport, self._protocol = self._loop.run(starting, start_timeout_s)
        except OSError as error:
            raise InfrastructureError(f"the engine {path} cannot be started: {error}.") from None
        self._loop.engines.add(self)
        try:
            self._ask(self._protocol.start({"Threads": 1, "Hash": hash_mib}), start_timeout_s, "being started")
        except EngineDiedError:  # perhaps killed for memory; to start it again takes no time
            raise
        except InfrastructureError as error:
            _failed_starts[path] = time.monotonic(), str(error)
            raise
        self.name = str(self._protocol.id.get("name", path))

    @property
    def is_alive(self) -> bool:
        """Whether the process is running."""
        return self._transport.get_returncode() is None and not self._transport.is_closing()

    def analyse(self, board: chess.Board, *, multipv: int, depth: int, timeout_s: float) -> tuple[Line, ...]:
        """Return the best moves of a position, best first: `multipv`, or as many as are legal.

        Raises:
            EngineDiedError: the engine died.
            InfrastructureError: the engine did not answer in time or broke the protocol; it has been killed.
        """
        wanted = min(multipv, board.legal_moves.count())
        searching = self._protocol.analyse(
            board,
            chess.engine.Limit(depth=depth),
            multipv=wanted,
            game=object(),  # a new game, so that it forgets earlier searches
            info=chess.engine.INFO_SCORE | chess.engine.INFO_PV,
        )
        infos = self._ask(searching, timeout_s, f"on {board.fen()}")
        lines = [
            Line(info["pv"][0].uci(), to_pawns(info["score"])) for info in infos if info.get("pv") and "score" in info
        ]
        if len({line.move for line in lines}) != wanted or len(lines) != wanted:
            self.close()
            raise self._problem(f"gave {len(lines)} lines where {wanted} were asked for, on {board.fen()}")
        return tuple(sorted(lines, key=lambda line: -line.evaluation))  # stable: equal ones keep the engine's order

    def _ask(self, question: Coroutine[Any, Any, T], timeout_s: float, when: str) -> T:
        try:
            return self._loop.run(self._protocol.while_alive(question), timeout_s)
        except TimeoutError:
            self.close()
            raise self._problem(f"did not answer in {timeout_s:g} s, {when}; it was killed") from None
        except chess.engine.EngineTerminatedError:
            self.close()
            status = self._transport.get_returncode()
            if status == launch.CANNOT_EXECUTE:
                raise self._problem("is no program for this machine") from None
            raise EngineDiedError(f"the engine {self.path} died {when} (exit status {status}).") from None
        except chess.engine.EngineError as error:  # a missing option, or a broken protocol
            self.close()
            raise self._problem(f"cannot be used ({when}): {error}") from None
        except BaseException:  # Ctrl-C during a search, which must not continue
            self.close()
            raise

    def _problem(self, what: str) -> InfrastructureError:
        return InfrastructureError(f"the engine {self.path} {what}.")

    def kill(self) -> None:
        """Kill the engine and its child processes, without waiting."""
        if self._transport.get_returncode() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # PermissionError: macOS, of a zombie
                (os.killpg if self._has_own_group else os.kill)(self._transport.get_pid(), signal.SIGKILL)

    def close(self) -> None:
        """Kill the engine and wait until it has ended."""
        self._loop.engines.discard(self)
        self.kill()
        with contextlib.suppress(TimeoutError, RuntimeError):  # RuntimeError: the loop is closed; it is killed anyway
            self._loop.run(self._end(), CLOSE_TIMEOUT_S)

    async def _end(self) -> None:
        self._transport.close()
        await self._protocol.exited.wait()


class _Protocol(chess.engine.UciProtocol):
    """python-chess' protocol, which does not tell everyone who waits that the process is over."""

    def __init__(self) -> None:
        super().__init__()
        self.exited = asyncio.Event()

    def process_exited(self) -> None:
        super().process_exited()
        self.exited.set()

    async def start(self, options: Mapping[str, int]) -> None:
        """Wait until the engine is ready, with those of the options that it has."""
        await self.initialize()
        await self.configure({name: value for name, value in options.items() if name in self.options})

    async def while_alive(self, question: Coroutine[Any, Any, T]) -> T:
        """The answer to a question.

        Raises:
            EngineTerminatedError: the process is over.
        """
        asking, over = asyncio.ensure_future(question), asyncio.ensure_future(self.exited.wait())
        try:
            await asyncio.wait({asking, over}, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                return asking.result()
            raise chess.engine.EngineTerminatedError
        finally:
            asking.cancel()
            over.cancel()


class _EventLoop:
    """The thread whose event loop serves all engines of this process."""

    def __init__(self) -> None:
        self.engines: set[EngineProcess] = set()
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(_note)
        # A daemon thread: others are joined before `atexit` could end it.
        self._thread = threading.Thread(target=self._loop.run_forever, name="chess engines", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_s: float) -> T:
        """Run a coroutine in the thread and wait for its result.

        Raises:
            TimeoutError: it took too long and was cancelled.
            RuntimeError: the loop is closed.
        """
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:
            coroutine.close()
            raise
        try:
            return future.result(timeout_s)
        finally:
            future.cancel()

    def close(self) -> None:
        """Kill every engine and end the thread."""
        for engine in list(self.engines):
            engine.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSE_TIMEOUT_S)
        if not self._thread.is_alive():
            self._loop.close()


def _note(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log what python-chess cannot report otherwise: an invalid `bestmove`, after which no answer comes."""
    chess.engine.LOGGER.warning("%s: %s", context.get("message"), context.get("exception"))


_current: _EventLoop | None = None
_starting = threading.Lock()
_inherited: list[_EventLoop] = []
"""Loops of parent processes, kept from garbage collection, which would close them."""


def _event_loop() -> _EventLoop:
    global _current
    with _starting:
        if _current is None:
            _current = _EventLoop()
        return _current


def _forget() -> None:
    """Reset in a forked child, which has no thread and whose engines belong to the parent."""
    global _current, _starting
    if _current is not None:
        _inherited.append(_current)
    _current, _starting = None, threading.Lock()


@atexit.register
def _close() -> None:
    if _current is not None:
        _current.close()


os.register_at_fork(after_in_child=_forget)
