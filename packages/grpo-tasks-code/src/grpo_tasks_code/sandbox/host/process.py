"""Processes that run the code of `inside`: their start, their messages and their end."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Literal, TypeVar

from grpo_tasks_code.sandbox.errors import ServerError
from grpo_tasks_code.sandbox.host.cgroups import cgroup_if_possible
from grpo_tasks_code.sandbox.host.scheduling import Scheduling, descendant, scheduling_of
from grpo_tasks_code.sandbox.inside import wire
from grpo_tasks_code.sandbox.inside.confinement import LevelName

T = TypeVar("T")

START_TIMEOUT_S = 60.0
"""Time for a server to start, which takes a tenth of a second on an idle machine."""
EXIT_TIMEOUT_S = 5.0
"""Time for a server to end, after its socket was closed or it was killed."""

_MAX_LAST_WORDS = 4000
"""Bytes of stderr that are reported of a server that does not start."""

_FLAGS = ("-P", "-s", "-S", "-B", "-X", "utf8")
"""No folder of the user, no site packages, no bytecode files. Not -I: it would ignore PYTHONHASHSEED."""

_ENVIRONMENT = {
    "MALLOC_ARENA_MAX": "2",  # each arena reserves 64 MiB of the address space that is the limit of memory
}
_KEPT_VARIABLES = ("LD_LIBRARY_PATH",)
"""Variables without which Python itself may not start."""

_BOOTSTRAP = """
import sys, types, _imp
from importlib.machinery import FileFinder, SourceFileLoader
class Loader(SourceFileLoader):
    def get_code(self, name):
        code = super().get_code(name)
        _imp._fix_co_filename(code, name)
        return code
def hook(folder):
    if not folder.startswith(sys.argv[1]):
        raise ImportError
    return FileFinder(folder, (Loader, [".py"]))
sys.path_hooks.insert(0, hook)
for name, folder in (("grpo_tasks_code", sys.argv[1]), ("grpo_tasks_code.sandbox", sys.argv[1] + "/sandbox")):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [folder]
del folder
"""
"""Imports the folder `inside` without the packages around it, whose dependencies are missing there, and hides file
names: a program can look at the frames that called it."""

_PACKAGE = Path(__file__).resolve().parents[2]


class InsideProcess:
    """A process that can import `inside` and the standard library, and nothing else; it ends when its socket is closed.

    Args:
        module: Module of `inside` whose `main` it runs, with a socket, this process's id, the folder of a control group
            (empty if there is none), and the arguments.
        arguments: Further arguments of `main`.
        environment: Environment variables.

    Attributes:
        name: What it is, for messages.
        control: This end of the socket.

    Raises:
        ServerError: it cannot be started.
    """

    name = "the server"

    def __init__(self, module: str, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        self.control, theirs = socket.socketpair()
        self._cgroup = cgroup_if_possible()
        cgroup = "" if self._cgroup is None else str(self._cgroup.path)
        entry = f"from grpo_tasks_code.sandbox.inside import {module}\n{module}.main(*sys.argv[2:])"
        passed = [str(_PACKAGE), str(theirs.fileno()), str(os.getpid()), cgroup, *arguments]
        kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        try:
            self._process = _starter.call(
                lambda: subprocess.Popen(
                    [sys.executable, *_FLAGS, "-c", _BOOTSTRAP + entry, *passed],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    cwd="/",
                    env={**(environment or {}), **kept},
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,  # Ctrl-C is for the trainer
                )
            )
        except OSError as error:
            self.control.close()
            if self._cgroup is not None:
                self._cgroup.close()
            raise ServerError(f"cannot start {sys.executable}: {error}") from None
        finally:
            theirs.close()

    def receive(self, within_s: float | None = None) -> tuple[dict[str, Any], bytes]:
        """Return the next message with its bytes.

        Raises:
            ServerError: the process has ended, did not answer in time, or reports that it failed.
        """
        try:
            self.control.settimeout(within_s)
            received = wire.receive(self.control)
        except TimeoutError:
            raise self._ended(f"did not answer within {within_s:g} s") from None
        except OSError as error:
            raise self._ended(f"failed: {error}") from None
        if received is None:
            raise self._ended("ended")
        message, data, _ = received
        if "error" in message:
            raise ServerError(f"{self.name}: {message['error']}")
        return message, data

    def _ended(self, why: str) -> ServerError:
        """End the process; the error says why, and what it last wrote to stderr."""
        self._end()
        words, stderr = "", self._process.stderr
        if stderr is not None and not stderr.closed:
            words = stderr.read(_MAX_LAST_WORDS).decode("utf-8", "replace").strip()
        return ServerError(": ".join(filter(None, (f"{self.name} {why}", words))))

    def hang_up(self) -> None:
        """Shut the socket down, so that both sides read its end, even if a forked child holds a copy."""
        with contextlib.suppress(OSError):
            self.control.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the process with all that it started."""
        self._end()
        if self._process.stderr is not None:
            self._process.stderr.close()
        if self._cgroup is not None:
            self._cgroup.close()

    def _end(self) -> None:
        self.hang_up()
        self.control.close()
        try:
            self._process.wait(EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()  # its death signal takes the rest
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(EXIT_TIMEOUT_S)

    def abandon(self) -> None:
        """Forget the process in a forked child: it is the parent's."""
        self.control.close()
        self._process.returncode = 0  # not our child: nothing to wait for


class ServerProcess(InsideProcess):
    """A running server.

    Args:
        level: Isolation level.
        is_restricted: Whether the server loads RestrictedPython.
        hash_seed: Hash seed, which decides the order of sets in all programs on this server.

    Raises:
        ServerError: the server does not start, or the system lacks what the level needs.
    """

    def __init__(self, level: LevelName, *, is_restricted: bool = False, hash_seed: int = 0) -> None:
        restricted = os.path.dirname(_folder_of("RestrictedPython")) if is_restricted else ""
        if is_restricted and not restricted:
            raise ServerError("the policy 'restricted' needs the package RestrictedPython")
        self.level: LevelName = level
        self.number = 0
        self.is_lost = False
        self._program: tuple[int, int | None] = (0, None)
        # L1 has no file system of its own; the others do not get a folder of the host's.
        self._box = tempfile.mkdtemp(prefix="grpo-sandbox-") if level == "L1" else ""
        environment = _ENVIRONMENT | {"PYTHONHASHSEED": str(hash_seed)}
        super().__init__("server", level, restricted, self._box, _folder_of("numpy"), environment=environment)
        try:
            self.receive(START_TIMEOUT_S)
        except BaseException:
            self.close()
            raise
        assert self._process.stderr is not None
        self._process.stderr.close()  # later output is dropped

    def reply(self) -> wire.Reply | None:
        """Return the report of a program that has ended, or None when the server has ended."""
        try:
            return wire.Reply(**self.receive()[0])
        except ServerError:
            return None

    def run(self, request: wire.Request, descriptors: Sequence[int]) -> None:
        """Start a program.

        Raises:
            ServerError: the server has ended.
        """
        if self._cgroup is not None:
            self._cgroup.limit_memory(request.memory_bytes)
        try:
            wire.send(self.control, {"run": asdict(request)}, descriptors=descriptors)
        except OSError as error:
            raise ServerError(f"the server is gone: {error}") from None

    def tell(self, order: Literal["kill", "pause", "resume"], number: int) -> None:
        """Kill, pause or resume the program, if it still runs."""
        with contextlib.suppress(OSError):
            wire.send(self.control, {order: number})

    def scheduling(self) -> Scheduling:
        """Return the scheduling counts of the running program."""
        generations = 2 if self.level == "L3" else 1  # there is a launcher before the server
        if self._program[0] != self.number or self._program[1] is None:
            self._program = (self.number, descendant(self._process.pid, generations))
        pid = self._program[1]
        return Scheduling() if pid is None else scheduling_of(pid)

    def close(self) -> None:
        """End the server with all that it started."""
        super().close()
        if self._box:
            shutil.rmtree(self._box, ignore_errors=True)


def _folder_of(package: str) -> str:
    """Return the folder of an installed package, without importing it; empty if there is none."""
    spec = find_spec(package)
    return "" if spec is None or spec.origin is None else os.path.dirname(spec.origin)


class _Starter:
    """A thread that starts processes and lives as long as this process.

    Linux sends the parent-death signal when the thread that started a process ends, and callers' threads come and go.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tasks: SimpleQueue[Callable[[], None]] | None = None

    def call(self, function: Callable[[], T]) -> T:
        """Run a function in the thread."""
        future: Future[T] = Future()

        def task() -> None:
            try:
                future.set_result(function())
            except BaseException as error:  # raised again in the calling thread
                future.set_exception(error)

        with self._lock:
            if self._tasks is None:
                self._tasks = SimpleQueue()
                threading.Thread(target=self._work, args=(self._tasks,), name="sandbox-starter", daemon=True).start()
            self._tasks.put(task)
        return future.result()

    @staticmethod
    def _work(tasks: SimpleQueue[Callable[[], None]]) -> None:
        while True:
            tasks.get()()


_starter = _Starter()


def forget_starter() -> None:
    """Forget the thread in a forked child, where it does not exist."""
    global _starter
    _starter = _Starter()
