"""Ends processes that a worker left behind when its keeper was killed; they are found by their environment."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from pathlib import Path

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
