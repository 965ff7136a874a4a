"""The process that workers are forked from, which imports once what all of them need."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import weakref
from collections.abc import Mapping
from pathlib import Path

from grpo_sdk.killable import worker as program
from grpo_sdk.killable.secrets import withheld

_AT_START = ("PYTHON", "LD_", "LC_", "LANG", "TZ", "MALLOC_", "GLIBC_", "PYDANTIC_DISABLE_PLUGINS")
"""Beginnings of variables that count when a process or a library starts."""

_INHERITED = (b"Umask", b"Uid", b"Gid", b"Groups", b"Cap", b"NoNewPrivs", b"Seccomp", b"Cpus_allowed", b"Mems_allowed")
"""Beginnings of lines of /proc/self/status that say what a child has from its parent."""

CLOSE_S = 2.0
"""Time for a server to end by itself."""

_servers: dict[object, ForkServer] = {}
"""By what a child has from its parent, and cannot get from elsewhere; see `_server`."""
_numbers = itertools.count()


class ForkServer:
    """A process that imports modules and forks. It ends with this one, and its children with it.

    Args:
        variables: Its environment.

    Attributes:
        children: Numbers of those that were asked for and have not ended.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(self, variables: Mapping[str, str]) -> None:
        self.children: set[int] = set()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", program.__file__, str(theirs.fileno()), str(os.getpid()), program.FORKS],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**variables, program.IN_WORKER_VARIABLE: "0" * program.MARK_CHARS},
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # Ctrl-C is for the trainer
            )
        except OSError:
            self._socket.close()
            raise
        finally:
            theirs.close()

    def send(self, request: Mapping[str, object], descriptors: tuple[int, ...] = ()) -> None:
        """Send a request; see `worker.serve_forks`.

        Raises:
            OSError: the process has ended.
        """
        socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)

    def has_ended(self, within_s: float = 0.0) -> bool:
        """Whether the process is over within a time, and its children with it."""
        try:
            self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def close(self) -> None:
        """End the process."""
        self._socket.close()
        try:
            self._process.wait(CLOSE_S)
        except subprocess.TimeoutExpired:  # somebody stopped it
            self._process.kill()
            self._process.wait()

    def abandon(self) -> None:
        """Forget it in a forked child: it is the parent's."""
        self._socket.close()
        self._process.returncode = 0  # not our child: nothing to wait for


class ForkedProcess:
    """A child of a fork server, which can be asked what a `subprocess.Popen` can.

    Args:
        preload: Module that the server imports first.
        channel: The worker's end of its socket.
        variables: Environment of the worker; see `_AT_START`.

    Attributes:
        server: The process that it is forked from.

    Raises:
        OSError: the server cannot be started.
    """

    def __init__(self, preload: str, channel: socket.socket, variables: Mapping[str, str]) -> None:
        self.returncode: int | None = None
        self.pid = next(_numbers)  # by which the server knows it: only a parent can name a process without a race
        self._status, theirs = os.pipe()
        os.set_blocking(self._status, False)
        self._close = weakref.finalize(self, os.close, self._status)
        self._close.atexit = False  # pools end at exit as well
        request = {
            "fork": self.pid,
            "preload": preload,
            "path": [str(entry) for entry in sys.path],
            "mark": variables[program.IN_WORKER_VARIABLE],
        }
        try:
            self.server = _server(variables)
            has_stderr = os.path.exists("/proc/self/fd/2")  # this process may run without one
            descriptors = (channel.fileno(), theirs, *((2,) if has_stderr else ()))
            try:
                self.server.send(request, descriptors)
            except OSError:  # somebody has just killed it
                self.server.close()
                self.server = _server(variables)
                self.server.send(request, descriptors)
            self.server.children.add(self.pid)
        finally:
            os.close(theirs)

    def poll(self) -> int | None:
        """Its exit status, or minus the signal; None while it runs."""
        if self.returncode is None:
            with contextlib.suppress(BlockingIOError):
                data = os.read(self._status, program.STATUS.size)
                # Without a word it was killed: it had no time for one.
                status = program.STATUS.unpack(data)[0] if data else int(signal.SIGKILL)
                self.returncode = os.waitstatus_to_exitcode(status)
                self._close()
                self.server.children.discard(self.pid)
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Wait for its end.

        Raises:
            subprocess.TimeoutExpired: it has not come.
        """
        if self.returncode is None:
            poller = select.poll()
            poller.register(self._status, select.POLLIN)
            poller.poll(timeout * 1000)
        if (status := self.poll()) is None:
            raise subprocess.TimeoutExpired("worker", timeout)
        return status

    def terminate(self) -> None:
        """Have it end by SIGTERM, also where it has not begun yet."""
        with contextlib.suppress(OSError):  # the server has ended, and its children with it
            self.server.send({"end": self.pid})


def _server(variables: Mapping[str, str]) -> ForkServer:
    """The server whose children are what this process could start now.

    What it has withheld counts, too, because other variables of a server can be read in its children.
    """
    at_start = frozenset(pair for pair in variables.items() if pair[0].startswith(_AT_START))
    key = (at_start, tuple(withheld()), _inherited())
    if key in _servers and _servers[key].has_ended():
        _servers.pop(key).close()
    if key not in _servers:
        for unused in [each for each, server in _servers.items() if not server.children]:
            _servers.pop(unused).close()
        _servers[key] = ForkServer(variables)
    return _servers[key]


def _inherited() -> tuple[bytes, ...]:
    """What the kernel hands on from a process to its children, as far as it tells."""
    try:
        status = Path("/proc/self/status").read_bytes().splitlines()
        texts = [Path(f"/proc/self/{name}").read_bytes() for name in ("limits", "cgroup")]
    except OSError:  # there is no /proc
        return ()
    lines = [line for line in status if line.startswith(_INHERITED)]
    return (*lines, *texts, str(os.getpriority(os.PRIO_PROCESS, 0)).encode())


def close_all() -> None:
    """End the servers, once no pool needs them."""
    while _servers:
        _servers.popitem()[1].close()


def abandon_all() -> None:
    """Forget the servers in a forked child."""
    while _servers:
        _servers.popitem()[1].abandon()
