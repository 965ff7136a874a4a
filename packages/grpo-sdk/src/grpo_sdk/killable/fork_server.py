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

from grpo_sdk.killable import worker as program
from grpo_sdk.killable.secrets import withheld

_AT_START = ("PYTHON", "LD_", "LC_", "LANG", "TZ", "MALLOC_", "GLIBC_", "PYDANTIC_DISABLE_PLUGINS")
"""Beginnings of variables that count when a process or a library starts: each set of them has a server of its own."""

_servers: dict[tuple[frozenset[tuple[str, str]], tuple[str, ...]], ForkServer] = {}
"""By the variables of `_AT_START` and the withheld ones, because the others can be read in a server's children."""
_numbers = itertools.count()


class ForkServer:
    """A process that imports modules and forks. It ends with this one, and its children with it.

    Args:
        variables: Its environment.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(self, variables: Mapping[str, str]) -> None:
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

    def close(self) -> None:
        """End the process."""
        self._socket.close()
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
            self._server = _server(variables)
            has_stderr = os.path.exists("/proc/self/fd/2")  # this process may run without one
            descriptors = (channel.fileno(), theirs, *((2,) if has_stderr else ()))
            try:
                self._server.send(request, descriptors)
            except OSError:  # somebody killed it
                self._server = _server(variables, anew=True)
                self._server.send(request, descriptors)
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
            self._server.send({"end": self.pid})


def _server(variables: Mapping[str, str], *, anew: bool = False) -> ForkServer:
    key = (frozenset(pair for pair in variables.items() if pair[0].startswith(_AT_START)), tuple(withheld()))
    if anew:
        _servers.pop(key).close()
    if key not in _servers:
        _servers[key] = ForkServer(variables)
    return _servers[key]


def close_all() -> None:
    """End the servers, once no pool needs them."""
    while _servers:
        _servers.popitem()[1].close()


def abandon_all() -> None:
    """Forget the servers in a forked child."""
    while _servers:
        _servers.popitem()[1].abandon()
