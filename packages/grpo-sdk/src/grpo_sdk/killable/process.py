from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import secrets
import selectors
import signal
import socket
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from grpo_sdk.killable import worker as program
from grpo_sdk.killable.fork_server import ForkedProcess, ForkServer
from grpo_sdk.killable.items import Item
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

SEEN_S = 0.1
"""The kernel ends the children of a process a moment before others see its own end."""

_EXIT_WAIT_S = 1.0
"""Time for a worker whose socket closed to get an exit status; its memory is free by then."""


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
        start_timeout_s: Limit of loading the target.
    """

    target: str
    args: tuple[JSON, ...]
    memory_mib: int | None
    name: str
    cwd: str | None
    has_spare: bool
    environment: Mapping[str, str]
    preload: str | None
    start_timeout_s: float

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


_READ_BYTES = 1 << 16


class Frame(NamedTuple):
    """A frame that has arrived: the fields of its header without the length, and its content."""

    fields: tuple[Any, ...]
    content: bytes


class Frames:
    """One end of a socket between processes, which never waits: headers that end with a length, each before its bytes.

    Args:
        channel: The socket.
        sent: Header of what is sent.
        received: Header of what arrives.
    """

    def __init__(self, channel: socket.socket, sent: struct.Struct, received: struct.Struct) -> None:
        self.channel, self._sent, self._received = channel, sent, received
        self._outbox, self._inbox = bytearray(), bytearray()
        channel.setblocking(False)

    def put(self, content: bytes, *fields: float) -> None:
        """Add a frame to what `flush` sends."""
        self._outbox += self._sent.pack(*fields, len(content)) + content

    def flush(self) -> bool:
        """Send what there is room for; returns whether that was all."""
        try:
            del self._outbox[: self.channel.send(self._outbox)]
        except BlockingIOError:
            pass
        except OSError:  # the other end is gone: the read that follows says so
            self._outbox.clear()
        return not self._outbox

    def listen(self, selector: selectors.BaseSelector) -> None:
        """Wait for room in the socket only while bytes wait for it; the selector knows it with this object."""
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._outbox else 0)
        if selector.get_key(self.channel).events != events:
            selector.modify(self.channel, events, self)

    def receive(self) -> tuple[list[Frame], bool]:
        """All frames that have arrived, and whether more may come.

        One that is longer than any may be also ends the conversation: something else wrote into the socket.
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
        frames: list[Frame] = []
        start, size = 0, self._received.size
        while len(self._inbox) - start >= size:
            *fields, length = self._received.unpack_from(self._inbox, start)
            if length > program.MAX_FRAME_BYTES:
                return frames, False
            end = start + size + length
            if len(self._inbox) < end:
                break
            frames.append(Frame(tuple(fields), bytes(self._inbox[start + size : end])))
            start = end
        del self._inbox[:start]
        return frames, is_open


class WorkerProcess(Frames):
    """A worker: its process, its socket, and the items it holds, oldest first.

    Attributes:
        held: Sent and not yet answered; the handler works on the first.
        is_ready: Whether its target is loaded.
        since: When it began what it does now, by the monotonic clock.
        deadline: When that must be done; infinite while idle.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(self, launch: Launch) -> None:
        self.held: deque[Item] = deque()
        self.is_ready = False
        self._waits: Waits | None = None
        self._mark = secrets.token_hex(program.MARK_CHARS // 2)
        channel, theirs = socket.socketpair()
        super().__init__(channel, program.REQUEST, program.ANSWER)
        try:
            self._process = launch.start(theirs, self._mark)
        except OSError:
            channel.close()
            raise
        finally:
            theirs.close()
        self.since = time.monotonic()
        self.deadline = self.since + launch.start_timeout_s
        setup = {
            **asdict(launch),
            "path": [str(entry) for entry in sys.path],  # people put Path objects there
            "variables": launch.variables(self._mark) if isinstance(self._process, ForkedProcess) else None,
        }
        self.put(json.dumps(setup).encode())
        self.flush()

    @property
    def group(self) -> int:
        """Process group of the worker."""
        return self._process.pid

    def give(self, item: Item) -> None:
        """Hold an item, which `flush` sends; its time runs from now, or from the answer before it."""
        self.held.append(item)
        if len(self.held) == 1:
            self.restart_clock()
        self.put(item.payload)

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
