from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeAlias

from grpo_sdk.killable import worker as program
from grpo_sdk.killable.fork_server import ForkedProcess, ForkServer
from grpo_sdk.killable.items import Item
from grpo_sdk.killable.outcome import Outcome
from grpo_sdk.killable.scheduling import Waits, patience_s
from grpo_sdk.killable.secrets import worker_environment

SEARCH_S = 1.0
"""Processes that start others faster than they are found are searched for no longer, nor are those that cannot die."""


def kill_orphans(variable: str) -> None:
    """Kill every process that was started with a variable in its environment.

    Linux only. Processes of another user are not seen, nor are those that were started with another environment.

    Args:
        variable: `NAME=value`, of a value that no other process has.
    """
    entry, give_up = variable.encode(), time.monotonic() + SEARCH_S
    is_alone = False
    with contextlib.suppress(OSError):  # no /proc, or no descriptor left to read it with
        while not is_alone and time.monotonic() < give_up:  # again, because one may have started another meanwhile
            is_alone = sum(_kill_if_marked(name, entry) for name in os.listdir("/proc") if name.isdigit()) == 0


def _kill_if_marked(pid: str, entry: bytes) -> bool:
    with contextlib.suppress(OSError), contextlib.ExitStack() as stack:  # it has ended, or is another user's
        process = _opened(int(pid), stack)  # before the look, so that the number cannot become somebody else's
        if entry in Path("/proc", pid, "environ").read_bytes().split(b"\0"):
            if process is None:
                os.kill(int(pid), signal.SIGKILL)
            else:
                signal.pidfd_send_signal(process, signal.SIGKILL)
            return True
    return False


def _opened(pid: int, stack: contextlib.ExitStack) -> int | None:
    """A descriptor of a process, closed with the stack; None where Python or the kernel knows none."""
    try:
        process = os.pidfd_open(pid)
    except AttributeError:  # a Python that was built for an older glibc
        return None
    except OSError as error:
        if error.errno == errno.ENOSYS:
            return None
        raise
    stack.callback(os.close, process)
    return process


JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"

_READ_BYTES = 1 << 16
SEEN_S = 0.1
"""The kernel ends the children of a process a moment before others see its own end."""

_EXIT_WAIT_S = 1.0
"""Time for a worker whose socket closed to get an exit status; its memory is free by then."""


class Answer(NamedTuple):
    """One frame from a worker, as `grpo_sdk.killable.worker` sends it."""

    kind: int
    seconds: float
    value: bytes

    @property
    def outcome(self) -> Outcome:
        """What the handler did."""
        if self.kind & program.ERROR:
            return Outcome("error", why=self.value.decode("utf-8", "replace"), seconds=self.seconds)
        return Outcome("ok", self.value, seconds=self.seconds)


_WORKER_DEFAULTS = {
    # One thread per worker: a numerical library's pool in each of them would fight over the same cores.
    "OMP_NUM_THREADS": "1",
    # A pydantic plugin that cannot be loaded would keep every worker from starting.
    "PYDANTIC_DISABLE_PLUGINS": "__all__",
}


@dataclass(frozen=True, slots=True)
class Launch:
    """Options with which workers are started.

    Attributes:
        target: "module:factory".
        args: The factory's arguments.
        memory_mib: Address space a worker may take beyond what its loaded target has; None is no limit.
        name: Shown in process lists, where they are not forked.
        cwd: Working directory, fixed when the pool was made, so that relative paths keep their meaning.
        has_spare: Whether one more worker than may be busy is kept ready, once one may be killed.
        environment: Environment variables set for the workers beside those of this process.
        preload: Module that is imported once, in a process from which they are forked where there are keepers.
    """

    target: str
    args: tuple[JSON, ...]
    memory_mib: int | None
    name: str
    cwd: str | None
    has_spare: bool = True
    environment: Mapping[str, str] = field(default_factory=dict)
    preload: str | None = None

    def variables(self, mark: str) -> dict[str, str]:
        """Environment variables of a worker."""
        return {**_WORKER_DEFAULTS, **worker_environment(), **self.environment, program.IN_WORKER_VARIABLE: mark}

    def start(self, channel: socket.socket, mark: str) -> subprocess.Popen[bytes] | ForkedProcess:
        """Start a worker.

        Args:
            channel: Its end of the socket.
            mark: Value of `IN_WORKER_VARIABLE`.

        Raises:
            OSError: it cannot be started.
        """
        if self.preload and program.HAS_KEEPER:
            return ForkedProcess(self.preload, channel, self.variables(mark))
        return subprocess.Popen(
            [sys.executable, "-P", program.__file__, str(channel.fileno()), str(os.getpid()), self.name],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            cwd=self.cwd,
            env=self.variables(mark),
            pass_fds=(channel.fileno(),),
            start_new_session=True,  # Ctrl-C is for the trainer, and a kill takes what the target started
        )


class WorkerProcess:
    """A worker: its process, its socket, and the items it holds, oldest first.

    Attributes:
        held: Sent and not yet answered; the handler works on the first.
        is_ready: Whether its target is loaded.
        since: When it began what it does now, by the monotonic clock.
        deadline: When that must be done; infinite while idle.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(self, launch: Launch, start_timeout_s: float) -> None:
        self.held: deque[Item] = deque()
        self.is_ready = False
        self._outbox = bytearray()
        self._inbox = bytearray()
        self._waits: Waits | None = None
        self._mark = secrets.token_hex(program.MARK_CHARS // 2)
        self.channel, theirs = socket.socketpair()
        try:
            self._process = launch.start(theirs, self._mark)
        except OSError:
            self.channel.close()
            raise
        finally:
            theirs.close()
        self.channel.setblocking(False)
        self.since = time.monotonic()
        self.deadline = self.since + start_timeout_s
        setup = {
            "path": [str(entry) for entry in sys.path],  # people put Path objects there
            "target": launch.target,
            "args": launch.args,
            "memory_mib": launch.memory_mib,
            "name": launch.name,
            "cwd": launch.cwd,
            "variables": launch.variables(self._mark) if isinstance(self._process, ForkedProcess) else None,
        }
        content = json.dumps(setup).encode()
        self._outbox += program.REQUEST.pack(len(content)) + content
        self.flush()

    @property
    def group(self) -> int:
        """Process group of the worker."""
        return self._process.pid

    @property
    def is_sending(self) -> bool:
        """Whether bytes wait for room in its socket."""
        return bool(self._outbox)

    def give(self, item: Item) -> None:
        """Hold an item, which `flush` sends; its time runs from now, or from the answer before it."""
        self.held.append(item)
        if len(self.held) == 1:
            self.restart_clock()
        self._outbox += program.REQUEST.pack(len(item.payload)) + item.payload

    def loaded(self, pid: int) -> None:
        """Note that the target is loaded.

        Args:
            pid: The worker, a child of its keeper.
        """
        self.is_ready = True
        self._waits = Waits(pid)
        self.restart_clock()

    def restart_clock(self) -> None:
        """Begin the first held item's time, or none."""
        self.since = time.monotonic()
        self.deadline = math.inf
        if self.held and self._waits is not None:
            self.deadline = self.since + self.held[0].timeout_s
            self._waits.begin()

    def look(self) -> None:
        """Note, while it works for long, what its processes have waited for so far."""
        if self.held and self._waits is not None:
            self._waits.look()

    def extend_deadline(self, now: float) -> bool:
        """Give back the time that the worker waited for a processor, up to a point.

        Returns:
            Whether the handler has had its time; if not, and the deadline has passed, it waited for the most of it.
        """
        if not self.held or self._waits is None:
            return True
        limit_s = self.held[0].timeout_s
        left_s = self._waits.left_s(limit_s, now - self.since)
        self.deadline = max(self.deadline, min(now + left_s, self.since + patience_s(limit_s)))
        return left_s <= 0

    def flush(self) -> None:
        """Send what there is room for."""
        try:
            del self._outbox[: self.channel.send(self._outbox)]
        except BlockingIOError:
            pass
        except OSError:  # it is gone: the read that follows says so, and the item is handled there
            self._outbox.clear()

    def receive(self) -> tuple[list[Answer], bool]:
        """All answers that have arrived, and whether more may come.

        An answer longer than any worker may send also ends the conversation: something else wrote into the socket.
        """
        is_open = True
        for _ in range(program.MAX_FRAME_BYTES // _READ_BYTES):
            try:
                data = self.channel.recv(_READ_BYTES)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            self._inbox += data
            is_open = bool(data)
            if len(data) < _READ_BYTES:
                break
        answers: list[Answer] = []
        start, size = 0, program.ANSWER.size
        while len(self._inbox) - start >= size:
            kind, seconds, length = program.ANSWER.unpack_from(self._inbox, start)
            if length > program.MAX_FRAME_BYTES:
                return answers, False
            if len(self._inbox) - start < size + length:
                break
            answers.append(Answer(kind, seconds, bytes(self._inbox[start + size : start + size + length])))
            start += size + length
        del self._inbox[:start]
        return answers, is_open

    @property
    def lost_server(self) -> ForkServer | None:
        """The server that it was forked from, where that has ended, and so ended it."""
        server = self._process.server if isinstance(self._process, ForkedProcess) else None
        wait_s = SEEN_S if self._process.poll() == -signal.SIGKILL else 0.0
        return server if server is not None and server.has_ended(wait_s) else None

    def has_exited(self) -> bool:
        """Whether the process is over; its socket may be held open by something it forked."""
        return self._process.poll() is not None

    def kill(self) -> None:
        """End it with what it started, and close its socket; `has_exited` reaps it."""
        self._close()
        if program.HAS_KEEPER:
            self._process.terminate()  # the keeper kills the worker and all that it leaves behind
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS says EPERM for a group of zombies
            os.killpg(self.group, signal.SIGKILL)

    def _close(self) -> None:
        self.channel.close()
        if self._waits is not None:
            self._waits.close()

    def kill_orphans(self) -> None:
        """End what the worker started, where its keeper was killed and could not."""
        if program.HAS_KEEPER and self._process.returncode == -signal.SIGKILL:
            kill_orphans(f"{program.IN_WORKER_VARIABLE}={self._mark}")

    def cause_of_death(self) -> str:
        """How the killed or dead process ended."""
        try:
            status = self._process.wait(_EXIT_WAIT_S)
        except subprocess.TimeoutExpired:
            return "closed its socket"
        if status >= 0:
            return f"exited with status {status}"
        try:
            return f"was killed by {signal.Signals(-status).name}"
        except ValueError:
            return f"was killed by signal {-status}"

    def wait(self, timeout_s: float) -> bool:
        """Wait for its end; False if it has not come."""
        try:
            self._process.wait(max(0.0, timeout_s))
        except subprocess.TimeoutExpired:
            return False
        return True

    def abandon(self) -> None:
        """Forget it in a forked child: it is the parent's."""
        self._close()
        self._process.returncode = 0  # not our child: nothing to wait for
