from __future__ import annotations

import os
import selectors
import socket
import subprocess
import sys

from grpo_sdk.killable.ray.cluster import REPLY, REQUEST
from grpo_sdk.killable.secrets import worker_environment
from grpo_sdk.killable.supervisor import fork_lock

CLOSE_S = 3.0
"""Time for leaving the cluster."""

NOT_BY_UV = "RAY_ENABLE_UV_RUN_RUNTIME_ENV"
"""Of Ray 2.60: under `uv run` it would send the working directory to the nodes, and make an environment there."""

_READ_BYTES = 1 << 20


class Channel:
    """The bridge's process and the socket to it.

    Args:
        selector: Hears the socket.

    Raises:
        OSError: the process cannot be started.
    """

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self._outbox, self._inbox = bytearray(), bytearray()
        path = os.pathsep.join(str(entry) for entry in sys.path)
        with fork_lock:
            self._socket, theirs = socket.socketpair()
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "grpo_sdk.killable.ray.bridge", str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=2,  # stdout is for results
                    env={NOT_BY_UV: "0", **worker_environment(), "PYTHONPATH": path},
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,  # Ctrl-C is for the trainer
                )
            except OSError:
                self._socket.close()
                raise
            finally:
                theirs.close()
        self._socket.setblocking(False)
        selector.register(self._socket, selectors.EVENT_READ, self)

    def send(self, payload: bytes, item: int, node: int, limit_s: float) -> None:
        """Send an item to a node; the setup is item 0."""
        self._outbox += REQUEST.pack(len(payload), item, node, limit_s) + payload
        self.flush()

    def flush(self) -> None:
        """Send what there is room for; wait for more only while bytes are left."""
        try:
            del self._outbox[: self._socket.send(self._outbox)]
        except BlockingIOError:
            pass
        except OSError:  # it is gone: the read that follows says so
            self._outbox.clear()
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._outbox else 0)
        if self._selector.get_key(self._socket).events != events:
            self._selector.modify(self._socket, events, self)

    def receive(self) -> tuple[list[tuple[int, int, float, bytes]], bool]:
        """Replies that have arrived: kind, number, seconds, value; and whether more may come."""
        try:
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return [], True
        except OSError:
            data = b""
        self._inbox += data
        replies, start = [], 0
        while len(self._inbox) - start >= REPLY.size:
            length, kind, number, seconds = REPLY.unpack_from(self._inbox, start)
            end = start + REPLY.size + length
            if len(self._inbox) < end:
                break
            replies.append((kind, number, seconds, bytes(self._inbox[start + REPLY.size : end])))
            start = end
        del self._inbox[:start]
        return replies, bool(data)

    def close(self) -> None:
        """End the process, which leaves the cluster at the end of the file."""
        self._selector.unregister(self._socket)
        self._socket.close()
        try:
            self._process.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def cause_of_death(self) -> str:
        """How the process ended."""
        try:
            return f"ended with status {self._process.wait(CLOSE_S)}"
        except subprocess.TimeoutExpired:
            return "closed its socket"

    def abandon(self) -> None:
        """In a forked child: close what was inherited; the process is the parent's."""
        self._socket.close()
        self._process.returncode = 0  # not our child: nothing to wait for
