from __future__ import annotations

import atexit
import contextlib
import math
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import chess

from grpo_sdk import InfrastructureError, inside_worker, refuse_at_import
from grpo_tasks_chess.engine import launch
from grpo_tasks_chess.formats import Line, mate_in
from grpo_tasks_chess.rules import legal_moves

HASH_MIB = 16
"""Stockfish's default; fixed, because the size of the table affects the result of a search."""

START_TIMEOUT_S = 10.0
"""Time limit of the start; an engine loads its network in a third of a second, on a busy machine much slower."""

RETRY_AFTER_S = 60.0
"""Time for which an engine that could not be started is not started again, so that only one completion waits for it."""

CLOSE_TIMEOUT_S = 5.0
"""Time limit for a killed process to end."""

READ_BYTES = 1 << 16

_SCORE, _PLACE = re.compile(r" score (cp|mate) (-?[0-9]{1,6})\b"), re.compile(r" multipv ([0-9]{1,3})\b")
_MOVE = re.compile(r" pv ([a-h][1-8][a-h][1-8][qrbn]?)\b")

_failed_starts: dict[str, tuple[float, str]] = {}
"""Engine -> when its last start failed, and why."""


class EngineDiedError(InfrastructureError):
    """The engine's process ended while it was needed."""


class EngineProcess:
    """A running engine with one thread, a fixed table and no memory of earlier positions, so that it is deterministic.

    It ends with this process: at exit by `atexit`, else by the parent-death signal (Linux) and the end of its input.
    Ctrl-C does not reach it. Any thread may use it, one call at a time. (python-chess' own client has no time limit for
    a search to a depth.)

    Args:
        path: Path of the program.
        start_timeout_s: Time limit of the start.

    Attributes:
        path: Path of the program.
        name: Name of the engine.

    Raises:
        InfrastructureError: it cannot be started, or does not speak UCI, now or in the last `RETRY_AFTER_S`.
        UserError: a task file is being imported.
    """

    def __init__(self, path: str, *, start_timeout_s: float = START_TIMEOUT_S) -> None:
        refuse_at_import("the engine")
        failed_at, problem = _failed_starts.get(path, (-math.inf, ""))
        if time.monotonic() - failed_at < RETRY_AFTER_S:
            raise InfrastructureError(problem)
        self.path = self.name = path
        self._options: set[str] = set()
        self._unread = bytearray()
        self._has_own_group = not inside_worker()  # else it stays in the worker's group, which is killed as a whole
        command = [sys.executable, "-I", "-S", launch.__file__, str(os.getpid()), path]
        try:
            self._process = _starter(os.getpid()).submit(_start, command, has_own_group=self._has_own_group).result()
        except OSError as error:
            raise InfrastructureError(f"the engine {path} cannot be started: {error}.") from None
        _running.add(self)
        try:
            for line in self._answers("uci", "uciok", start_timeout_s, "being started"):
                if name := re.match(r"id name (.+)", line):
                    self.name = name[1]
                elif option := re.match(r"option name (.+?) type ", line):
                    self._options.add(option[1])
            for option_name, value in (("Threads", 1), ("Hash", HASH_MIB), ("UCI_AnalyseMode", "true")):
                if option_name in self._options:
                    self._send(f"setoption name {option_name} value {value}")
        except EngineDiedError:  # perhaps killed for memory; to start it again takes no time
            raise
        except InfrastructureError as error:
            _failed_starts[path] = time.monotonic(), str(error)
            raise

    @property
    def is_alive(self) -> bool:
        """Whether the process is running."""
        return self._process.poll() is None

    def analyse(self, board: chess.Board, *, multipv: int, depth: int, timeout_s: float) -> tuple[Line, ...]:
        """Return the best moves of a position, best first: `multipv`, or as many as are legal.

        Raises:
            EngineDiedError: the engine died.
            InfrastructureError: the engine did not answer in time or broke the protocol; it has been killed.
        """
        legal, when = legal_moves(board), f"on {board.fen()}"
        wanted, has_several = min(multipv, len(legal)), "MultiPV" in self._options
        if wanted > 1 and not has_several:
            self.close()
            raise self._problem(f"cannot be used ({when}): it does not support option MultiPV")
        several = f"setoption name MultiPV value {wanted}\n" if has_several else ""
        new = f"ucinewgame\n{several}isready\n"  # so that it forgets earlier searches
        search = f"position fen {board.fen(en_passant='fen')}\ngo depth {depth}"
        found: dict[str, Line] = {}  # what it said last of each line of play
        for said in self._answers(new + search, "bestmove", timeout_s, when):
            score, move = _SCORE.search(said), _MOVE.search(said)
            if score and move and move[1] in legal and not said.startswith("info string"):
                number = int(score[2])
                place = _PLACE.search(said)
                found[place[1] if place else "1"] = Line(move[1], number / 100 if score[1] == "cp" else mate_in(number))
        if len({line.move for line in found.values()}) != wanted or len(found) != wanted:
            self.close()
            raise self._problem(f"gave {len(found)} lines where {wanted} were asked for, {when}")
        return tuple(sorted(found.values(), key=lambda line: -line.evaluation))  # stable: equal ones keep their order

    def _send(self, commands: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it is over, as its output says
            self._process.stdin.write(f"{commands}\n".encode())

    def _answers(self, commands: str, last: str, timeout_s: float, when: str) -> Iterator[str]:
        """Give commands and yield the lines that the engine answers, up to the one that begins with the word `last`.

        Raises:
            EngineDiedError: the engine died.
            InfrastructureError: the engine did not answer in time; it has been killed.
        """
        assert self._process.stdout is not None
        output, ends = self._process.stdout.fileno(), time.monotonic() + timeout_s
        waiting = select.poll()
        waiting.register(output, select.POLLIN | select.POLLHUP)
        try:
            self._send(commands)
            while True:
                while (end := self._unread.find(b"\n")) >= 0:
                    line = self._unread[:end].decode(errors="replace").strip()
                    del self._unread[: end + 1]
                    if line.split(" ", 1)[0] == last:
                        return
                    yield line
                left_s = ends - time.monotonic()
                if left_s <= 0 or not waiting.poll(1000 * left_s):
                    self.close()
                    raise self._problem(f"did not answer in {timeout_s:g} s, {when}; it was killed")
                if not (data := os.read(output, READ_BYTES)):
                    raise self._death(when)
                self._unread += data
        except InfrastructureError:
            raise
        except BaseException:  # Ctrl-C during a search, which must not continue
            self.close()
            raise

    def _death(self, when: str) -> InfrastructureError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(CLOSE_TIMEOUT_S)
        self.close()
        if self._process.returncode == launch.CANNOT_EXECUTE:
            return self._problem("is no program for this machine")
        return EngineDiedError(f"the engine {self.path} died {when} (exit status {self._process.returncode}).")

    def _problem(self, what: str) -> InfrastructureError:
        return InfrastructureError(f"the engine {self.path} {what}.")

    def close(self) -> None:
        """Kill the engine and its child processes, and wait until it has ended."""
        _running.discard(self)
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # PermissionError: macOS, of a zombie
                (os.killpg if self._has_own_group else os.kill)(self._process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(CLOSE_TIMEOUT_S)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


def _start(command: list[str], *, has_own_group: bool) -> subprocess.Popen[bytes]:
    pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
    group = 0 if has_own_group else None
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nowhere, process_group=group, bufsize=0)


_running: set[EngineProcess] = set()
os.register_at_fork(after_in_child=_running.clear)  # whose engines belong to its parent


@atexit.register
def _close() -> None:
    for engine in list(_running):
        engine.close()


@lru_cache(maxsize=1)
def _starter(pid: int) -> ThreadPoolExecutor:
    """The thread that starts the engines of a process: the parent-death signal comes when the starting thread ends."""
    return ThreadPoolExecutor(1, "chess engines")
