"""The process of a server: its start, its messages and its end."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

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

_SERVER = """
from grpo_tasks_code.sandbox.inside import server
server.main(int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), *sys.argv[5:9])
"""

_PACKAGE = Path(__file__).resolve().parents[2]


def start_inside(
    entry: str, arguments: Sequence[str], passed: int, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a process that can import `grpo_tasks_code.sandbox.inside` and the standard library, and nothing else.

    Args:
        entry: Code that it runs; `sys.argv[2:]` are the arguments.
        arguments: Arguments of the code.
        passed: Descriptor that it inherits.
        environment: Environment variables.

    Raises:
        ServerError: it cannot be started.
    """
    command = [sys.executable, *_FLAGS, "-c", _BOOTSTRAP + entry, str(_PACKAGE), *arguments]
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    try:
        return _starter.call(
            lambda: subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                cwd="/",
                env={**(environment or {}), **kept},
                pass_fds=(passed,),
                start_new_session=True,  # Ctrl-C is for the trainer
            )
        )
    except OSError as error:
        raise ServerError(f"cannot start {sys.executable}: {error}") from None


class ServerProcess:
    """A running server.

    Args:
        level: Isolation level.
        is_restricted: Whether the server loads RestrictedPython.
        hash_seed: Hash seed, which decides the order of sets in all programs on this server.

    Raises:
        ServerError: the server does not start, or the system lacks what the level needs.
    """

    def __init__(self, level: LevelName, *, is_restricted: bool = False, hash_seed: int = 0) -> None:
        self.level: LevelName = level
        self.number = 0
        self.is_lost = False
        self.control, theirs = socket.socketpair()
        # L1 has no file system of its own; the others do not get a folder of the host's.
        self._box = tempfile.mkdtemp(prefix="grpo-sandbox-") if level == "L1" else ""
        restricted = os.path.dirname(_folder_of("RestrictedPython")) if is_restricted else ""
        if is_restricted and not restricted:
            raise ServerError("the policy 'restricted' needs the package RestrictedPython")
        self._cgroup = cgroup_if_possible()
        cgroup = "" if self._cgroup is None else str(self._cgroup.path)
        arguments = [str(theirs.fileno()), level, str(os.getpid()), restricted, self._box, cgroup, _folder_of("numpy")]
        environment = _ENVIRONMENT | {"PYTHONHASHSEED": str(hash_seed)}
        try:
            self._process = start_inside(_SERVER, arguments, theirs.fileno(), environment)
        except ServerError:
            self.control.close()
            if self._cgroup is not None:
                self._cgroup.close()
            raise
        finally:
            theirs.close()
        assert self._process.stderr is not None
        with self._process.stderr:  # read only while it starts; later output is dropped
            try:
                self._await_ready()
            except ServerError as error:
                self.close()
                last_words = self._process.stderr.read(_MAX_LAST_WORDS).decode("utf-8", "replace").strip()
                raise ServerError(": ".join(filter(None, (str(error), last_words)))) from None

    def _await_ready(self) -> None:
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        if not poll.poll(START_TIMEOUT_S * 1000):
            raise ServerError(f"no answer within {START_TIMEOUT_S:g} s")
        reply = self.receive()
        if reply is None:
            raise ServerError("it ended while it started")
        if reply.kind != wire.READY:
            raise ServerError(reply.reason)

    def receive(self) -> wire.Reply | None:
        """Return the next message, or None when the server has ended."""
        data = b""
        try:
            while len(data) < wire.REPLY_BYTES:
                more = self.control.recv(wire.REPLY_BYTES - len(data))
                if not more:
                    return None
                data += more
        except OSError:
            return None
        return wire.Reply.unpack(data)

    def run(self, request: wire.Request, descriptors: list[int]) -> None:
        """Start a program.

        Raises:
            ServerError: the server has ended.
        """
        if self._cgroup is not None:
            self._cgroup.limit_memory(request.memory_bytes)
        try:
            socket.send_fds(self.control, [request.pack()], descriptors)
        except OSError as error:
            raise ServerError(f"the server is gone: {error}") from None

    def kill_program(self, number: int) -> None:
        """Kill the program, if it still runs."""
        with contextlib.suppress(OSError):
            self.control.sendall(wire.Request(wire.KILL, number).pack())

    def scheduling(self) -> Scheduling:
        """Return the scheduling counts of the running program."""
        generations = 2 if self.level == "L3" else 1  # there is a launcher before the server
        pid = descendant(self._process.pid, generations)
        return Scheduling() if pid is None else scheduling_of(pid)

    def hang_up(self) -> None:
        """Shut the socket down, so that both sides read its end, even if a forked child holds a copy."""
        with contextlib.suppress(OSError):
            self.control.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the server: when its socket is closed it exits with all that it started."""
        self.hang_up()
        self.control.close()
        try:
            self._process.wait(EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()  # its death signal takes the rest
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(EXIT_TIMEOUT_S)
        if self._box:
            shutil.rmtree(self._box, ignore_errors=True)
        if self._cgroup is not None:
            self._cgroup.close()

    def abandon(self) -> None:
        """Forget the server in a forked child: it is the parent's."""
        self.control.close()
        self._process.returncode = 0  # not our child: nothing to wait for


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
