"""The program of a worker process: load a target, then answer framed payloads until the parent goes away.

It is started by its path and imports only the standard library, so that it needs no import path (that arrives in the
first frame) and starts in tens of milliseconds. It is the program of a fork server as well, whose children go on as
workers.

    parent -> worker   length | bytes                     the first: JSON of the set-up; then payloads
    worker -> parent   kind, seconds, length | bytes      READY (its process id) or BROKEN once; then one answer per
                                                          payload, in order
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import json
import math
import os
import resource
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

if TYPE_CHECKING:
    from typing_extensions import Buffer

REQUEST = struct.Struct("<I")
ANSWER = struct.Struct("<BdI")
STATUS = struct.Struct("<i")
"""The wait status of a worker, as the keeper of a forked one reports it."""

OK, ERROR, READY, BROKEN = range(4)
LEAVING = 4
"""Kinds of answer; LEAVING is added to the kind of a worker's last."""

MAX_FRAME_BYTES = 64 << 20
"""Above any honest payload or answer; bounds what one side can make the other allocate."""

MAX_MESSAGE_CHARS = 500
"""Bound on an exception's text: it may quote a hostile payload."""

MAX_PRINT_BYTES = 4096
"""Most bytes that one payload may print: a print in a hot loop must not fill the disk under a log."""

IN_WORKER_VARIABLE = "GRPO_KILLABLE_WORKER"
"""Set in the environment of workers and of what they start, to what no other worker has."""

MARK_CHARS = 32

FORKS = "--fork-server"
"""In place of a worker's name: the process is a fork server."""

MAX_REQUEST_BYTES = 1 << 20
REAP_EVERY_S = 5.0
"""Interval at which a fork server that nobody asks looks after its children and its parent."""

MEMORY_CHECK_EVERY = 16
"""Payloads between two looks at the memory in use, which cost 3 µs each."""

LEFT_BEHIND_S = 3.0
"""Time that is left to what a worker with a grace period leaves behind, to remove what it has in shared memory."""

MAX_WAIT_S = 3600.0

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # <linux/prctl.h>
_KEPT_SIGNALS = {signal.SIGTERM, signal.SIGCHLD}

HAS_KEEPER = sys.platform.startswith("linux")
"""Whether a worker's parent is a keeper, which ends whatever the worker leaves behind."""

Handler = Callable[[bytes], bytes]


class _BoundedPrints(io.RawIOBase):
    """Passes what is written on to a descriptor, in whole lines, up to `MAX_PRINT_BYTES` per payload."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._left = MAX_PRINT_BYTES
        self._line = b""  # workers share the descriptor, and print() writes a line in pieces

    def renew(self) -> None:
        """Pass an unfinished line on with an end, since what follows it may be another worker's; renew the bound."""
        if self._line:
            self._line += b"\n"
            self.flush()
        self._left = MAX_PRINT_BYTES

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 2  # /dev/null by then: who asks for a descriptor wants to go round the bound

    def write(self, data: Buffer, /) -> int:
        view = memoryview(data).cast("B")
        if self._left > 0:
            self._line += bytes(view[: self._left])
            self._left -= len(view)
            if self._left < 0:
                self._line += b"\n... (more was printed and dropped)\n"
            self._pass_on(self._line.rfind(b"\n") + 1)
        return len(view)

    def flush(self) -> None:
        self._pass_on(len(self._line))

    def _pass_on(self, size: int) -> None:
        if not size:
            return
        shown, self._line = self._line[:size], self._line[size:]
        try:
            os.write(self._fd, shown)
        except OSError:  # the parent's stderr is closed or full: prints are a courtesy
            self._left, self._line = 0, b""


def describe(error: BaseException) -> str:
    """One bounded line: `TypeName: message (file:line)`."""
    try:
        message = " ".join(str(error)[:MAX_MESSAGE_CHARS].split())
    except Exception:  # an exception's own __str__ is foreign code too
        message = "(its text could not be made)"
    place = ""
    traceback = error.__traceback__
    if traceback is not None:
        while traceback.tb_next is not None:
            traceback = traceback.tb_next
        place = f" ({Path(traceback.tb_frame.f_code.co_filename).name}:{traceback.tb_lineno})"
    return f"{type(error).__name__}: {message}{place}" if message else f"{type(error).__name__}{place}"


def keep(parent: int, grace_s: float = 0.0, report: int | None = None) -> None:
    """Become two processes: this one goes on as the worker, its new parent ends all that the worker leaves behind.

    Whatever the worker starts, in sessions of their own or detached, belongs to that keeper once the worker is gone. It
    ends when the worker does, at SIGTERM, and with `parent`, also while the worker is stuck in C. Linux only.

    Args:
        parent: Process with which the worker ends.
        grace_s: Seconds that the worker has to end by itself, at SIGTERM; what it leaves behind has `LEFT_BEHIND_S`. By
            default all are killed at once.
        report: Descriptor to which the keeper writes the worker's status before it ends.
    """
    if not HAS_KEEPER:
        return
    import ctypes

    prctl = ctypes.CDLL(None).prctl

    def die_with(parent: int, death_signal: signal.Signals) -> None:
        prctl(_PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0)
        if os.getppid() != parent:  # it died before the call
            os._exit(0)

    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _KEPT_SIGNALS)
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    die_with(parent, signal.SIGTERM)
    keeper, worker = os.getpid(), os.fork()
    if worker:
        _silence_descriptors()
        _close_inherited(report)  # the worker's end of the socket is the worker's alone
        status = _end_all(worker, grace_s)
        if report is not None:
            os.write(report, STATUS.pack(status))
        _leave_as(status)
    if report is not None:
        os.close(report)
    os.setpgid(0, 0)  # a handler may kill its own process group, not its keeper
    die_with(keeper, signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _end_all(worker: int, grace_s: float) -> int:
    """Wait for the worker's end or for SIGTERM, then end everything that is left; returns the worker's status."""
    status: int | None = None
    deadline = math.inf
    while time.monotonic() < deadline:
        wait_s = min(max(0.0, deadline - time.monotonic()), MAX_WAIT_S)
        received = signal.sigtimedwait(_KEPT_SIGNALS, wait_s)
        if received is not None and received.si_signo == signal.SIGTERM:
            deadline = min(deadline, time.monotonic() + grace_s)
            if grace_s and status is None:
                os.kill(worker, signal.SIGTERM)
        try:
            while (found := os.waitpid(-1, os.WNOHANG))[0]:  # the worker, or something detached
                status = found[1] if found[0] == worker else status
        except ChildProcessError:  # all have ended
            break
        if status is not None:
            deadline = min(deadline, time.monotonic() + (LEFT_BEHIND_S if grace_s else 0.0))
    if status is None:
        os.kill(worker, signal.SIGKILL)
        status = os.waitpid(worker, 0)[1]
    end = time.monotonic() + (LEFT_BEHIND_S if grace_s else 0.0)
    with contextlib.suppress(OSError):  # there is none left, or no /proc to find them in
        while _kill_children(spares_trackers=time.monotonic() < end):
            signal.sigtimedwait(_KEPT_SIGNALS, 0.1)
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass  # what a killed one leaves behind is a child of this process from now on
    return status


def _kill_children(*, spares_trackers: bool) -> int:
    """Kill the children of this process; returns how many there are, but for those that another user took over.

    Args:
        spares_trackers: Whether to leave Python's trackers of resources: each ends by itself when nobody uses it, after
            it has removed from shared memory what killed processes left there.
    """
    found = 0
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError):  # it has ended or may not be killed, or it is no process
            parent = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()[1]
            if int(parent) == os.getpid():
                if not (spares_trackers and b".resource_tracker import" in Path(f"/proc/{name}/cmdline").read_bytes()):
                    os.kill(int(name), signal.SIGKILL)
                found += 1
    return found


def _leave_as(status: int) -> None:
    """End as a process of that wait status did, so that who started this one sees the same."""
    if os.WIFSIGNALED(status):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status))


def _divert_prints() -> _BoundedPrints:
    """Send Python's prints, bounded, to the parent's stderr, and everything else written to stdout to nowhere."""
    try:
        stderr = os.dup(2)
    except OSError:  # the parent runs without one
        stderr = os.open(os.devnull, os.O_WRONLY)
    prints = _BoundedPrints(stderr)
    # Write-through over a raw stream is what `python -u` uses: nothing is lost when the worker is killed.
    stream = io.TextIOWrapper(cast("BinaryIO", prints), "utf-8", errors="backslashreplace", write_through=True)
    sys.stdout = sys.stderr = sys.__stdout__ = sys.__stderr__ = stream  # type: ignore[misc] # Final, for ordinary code
    return prints


def _silence_descriptors() -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    os.close(null)


def _close_inherited(kept: int | None) -> None:
    """Close every descriptor but the standard ones and the one that is kept."""
    try:
        names = os.listdir("/proc/self/fd")  # a range may have 2^30 numbers, closed one by one without close_range()
    except OSError:
        names = [str(fd) for fd in range(os.sysconf("SC_OPEN_MAX"))]
    for fd in map(int, names):
        if fd > 2 and fd != kept:
            with contextlib.suppress(OSError):  # that of the listing is closed already
                os.close(fd)


class _MemoryLimit:
    """Limits the address space to what the loaded target has, plus `memory_mib`; needs Linux."""

    def __init__(self, memory_mib: int | None) -> None:
        self._fd: int | None = None
        if memory_mib is None or not Path("/proc/self/statm").exists():
            return
        self._fd = os.open("/proc/self/statm", os.O_RDONLY)
        loaded = self._used()
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        limit = loaded + (memory_mib << 20)
        if soft != resource.RLIM_INFINITY:
            limit = min(limit, soft)
        self._half = (loaded + limit) // 2
        # The soft one only: a target that starts programs may give them limits of their own.
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))

    def _used(self) -> int:
        assert self._fd is not None
        return int(os.pread(self._fd, 64, 0).split()[0]) * resource.getpagesize()

    def is_half_used(self) -> bool:
        """Whether what was left behind by earlier payloads is about to hurt those that come."""
        return self._fd is not None and self._used() > self._half


def _load(target: str, args: list[Any]) -> Handler:
    module, _, name = target.partition(":")
    factory = getattr(importlib.import_module(module), name)
    handle = factory(*args)
    if not callable(handle):
        raise TypeError(f"{target}() returned a {type(handle).__name__}; it must return a function of bytes")
    return handle  # type: ignore[no-any-return] # callable is all that can be checked


def _read(reader: BinaryIO) -> bytes | None:
    """One frame, or None when the parent has gone."""
    try:
        header = reader.read(REQUEST.size)
        if len(header) < REQUEST.size:
            return None
        (length,) = REQUEST.unpack(header)
        payload = reader.read(length)
    except ConnectionError:
        return None
    return payload if len(payload) == length else None


def _write(channel: socket.socket, kind: int, seconds: float, value: bytes) -> None:
    channel.sendall(ANSWER.pack(kind, seconds, len(value)) + value)


def serve_forks(channel: socket.socket, parent: int) -> tuple[socket.socket, int] | None:
    """Import what workers share, and fork one for each request, until the parent goes away.

    A request to fork is `{"fork": number, "preload": module, "path": …, "mark": …}`, with the descriptors of the
    worker's end of its socket, of the pipe for its status, and of stderr where there is one. `{"end": number}`
    terminates a child.

    Returns:
        In a child, its socket and the pipe; in the server, None.
    """
    children: dict[int, int] = {}
    channel.settimeout(REAP_EVERY_S)
    while os.getppid() == parent:
        try:
            data, descriptors, _, _ = socket.recv_fds(channel, MAX_REQUEST_BYTES, 3)
        except TimeoutError:
            data, descriptors = b"{}", []
        except ConnectionError:
            break
        if not data:
            break
        children = {number: child for number, child in children.items() if not os.waitpid(child, os.WNOHANG)[0]}
        request = json.loads(data)
        if request.get("end") in children:
            os.kill(children[request["end"]], signal.SIGTERM)
        if "fork" not in request:
            continue
        _import(request["preload"], request["path"])
        try:
            child = os.fork()
        except OSError as error:
            with contextlib.suppress(ConnectionError):
                _write(socket.socket(fileno=os.dup(descriptors[0])), BROKEN, 0.0, describe(error).encode())
        else:
            if not child:
                channel.close()
                return _become_worker(descriptors, request["mark"])
            children[request["fork"]] = child
        for descriptor in descriptors:
            os.close(descriptor)
    return None


def _import(module: str, path: list[str]) -> None:
    if module not in sys.modules:
        sys.path[:] = path
        with contextlib.suppress(BaseException):  # the worker will meet it too, and say why
            importlib.import_module(module)
        gc.freeze()  # a collection in a child would write to, and so copy, what it shares


def _become_worker(descriptors: list[int], mark: str) -> tuple[socket.socket, int]:
    import ctypes

    channel, report, *stderr = descriptors
    os.setsid()
    os.dup2(stderr[0] if stderr else 0, 2)
    for descriptor in stderr:
        os.close(descriptor)
    # The kernel shows the variables that the server was started with: there, a worker's mark is written over its own.
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_void_p
    ctypes.memmove(getenv(IN_WORKER_VARIABLE.encode()), mark.encode(), MARK_CHARS)
    importlib.invalidate_caches()
    return socket.socket(fileno=channel), report


def _serve(
    channel: socket.socket, reader: BinaryIO, handle: Handler, prints: _BoundedPrints, limit: _MemoryLimit
) -> None:
    is_leaving, served, server = False, 0, os.getpid()
    while not is_leaving and (payload := _read(reader)) is not None:
        begin = time.perf_counter()
        try:
            kind, value = OK, handle(payload)
            if not isinstance(value, bytes):
                raise TypeError(f"the handler returned a {type(value).__name__}, not bytes")
            if len(value) > MAX_FRAME_BYTES:
                raise ValueError(f"the handler returned {len(value)} bytes; the limit is {MAX_FRAME_BYTES}")
        except BaseException as error:  # whatever it raises, SystemExit too, is this payload's outcome
            kind, value = ERROR, describe(error).encode("utf-8", "backslashreplace")
            is_leaving = isinstance(error, MemoryError)  # what it allocated may live on: a fresh worker starts clean
        if os.getpid() != server:  # forked by the handler and come back: its answer would be taken for the next one
            os._exit(0)
        seconds = time.perf_counter() - begin
        prints.renew()
        served += 1
        is_leaving = is_leaving or (served % MEMORY_CHECK_EVERY == 0 and limit.is_half_used())
        _write(channel, kind + LEAVING * is_leaving, seconds, value)


def main() -> None:
    """Run the worker, or the fork server: `python worker.py DESCRIPTOR PARENT_PID NAME`."""
    channel, parent, name = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]), sys.argv[3]
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, as by whoever started this one, it leaves no status
    report = None
    if name == FORKS:
        server = os.getpid()
        forked = serve_forks(channel, parent)
        if forked is None:
            channel.close()
            return
        (channel, report), parent = forked, server
    channel.set_inheritable(False)
    keep(parent, report=report)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with channel, channel.makefile("rb") as reader:
        _work(channel, reader, is_forked=report is not None)


def _work(channel: socket.socket, reader: BinaryIO, *, is_forked: bool) -> None:
    if (first := _read(reader)) is None:
        return
    setup = json.loads(first)
    sys.path[:] = setup["path"]
    sys.argv[:] = [setup["name"]]
    prints = _divert_prints()
    begin = time.perf_counter()
    try:
        try:
            if is_forked:
                os.environ.clear()
                os.environ.update(setup["variables"])
                os.chdir(setup["cwd"] or ".")
            handle = _load(setup["target"], setup["args"])
        except BaseException as error:  # an import may raise anything; it is the reason that there is no worker
            _write(channel, BROKEN, time.perf_counter() - begin, describe(error).encode("utf-8", "backslashreplace"))
            return
        _silence_descriptors()
        prints.renew()
        limit = _MemoryLimit(setup["memory_mib"])
        _write(channel, READY, time.perf_counter() - begin, str(os.getpid()).encode())
        _serve(channel, reader, handle, prints, limit)
    except ConnectionError:  # the parent has gone away: while this worker started, or while an answer was on its way
        return


if __name__ == "__main__":
    main()
