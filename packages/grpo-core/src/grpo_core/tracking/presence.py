"""Which process works in a run's folder: one at a time, and a note of it that a killed one leaves behind."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import filelock
import orjson
import psutil

from grpo_core.errors import UserError

LOCK = Path("logs") / "run.lock"
"""Locked by the process that works in a run's folder; the system unlocks it when that process ends, however it ends."""

NOTE = Path("logs") / "process.json"
"""Which process works in a run's folder; gone when it has ended in order."""

SAME_START_S = 2.0
"""Two readings of one process's start differ by less; another process of the same number by more."""

FRESH_S = 15 * 60.0
"""A run on another machine counts as alive while a log was written so recently: longer than nearly every step."""

MAX_NOTE_BYTES = 4096
"""A note has about a hundred."""


_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL})
"""What a file system answers that cannot lock, as NFS without its lock service; filelock deals with ENOSYS itself."""


@dataclass(frozen=True, slots=True)
class Writer:
    """The process that a note names.

    Attributes:
        pid: Its number on its machine.
        started: When it started, in seconds since the epoch.
        host: Name of its machine.
        since: When it began to work in the folder.
    """

    pid: int
    started: float
    host: str
    since: float

    def __str__(self) -> str:
        began = datetime.fromtimestamp(self.since).strftime("%Y-%m-%d %H:%M:%S")
        return f"process {self.pid} on {self.host} since {began}"


@contextlib.contextmanager
def working_in(run_dir: Path) -> Iterator[str]:
    """Keep every other process out of a run's folder while the block runs, and note who is in it.

    The lock is the system's and dies with its process, so a killed run leaves none behind; NFS and most cluster file
    systems pass it on to other machines. Where there are no locks, the note decides.

    Yields:
        What the user should know: another machine seems to work in the folder, and the lock did not tell.

    Raises:
        UserError: another process works there, or the lock cannot be made; says who it is.
    """
    lock, warning = filelock.FileLock(run_dir / LOCK, timeout=0, thread_local=False), ""
    try:
        lock.acquire()
    except filelock.Timeout:
        raise _refusal(run_dir) from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise UserError(f"cannot lock {run_dir / LOCK}: {error.strerror or error}.") from None
        if is_alive(run_dir):
            raise _refusal(run_dir) from None
    else:
        other = noted(run_dir)
        if other is not None and other.host != socket.gethostname() and is_alive(run_dir):
            # Not refused: after a kill, a scheduler starts the job again on another machine, and at once.
            warning = f"{run_dir}: the last writer was {other}, and its log is fresh; make sure that it has ended"
    try:
        announce(run_dir)
        yield warning
    finally:
        withdraw(run_dir)
        lock.release()


def _refusal(run_dir: Path) -> UserError:
    other = noted(run_dir)
    who = "another process" if other is None else str(other)
    stop = "" if other is None or other.host != socket.gethostname() else f" (kill {other.pid} saves the run)"
    return UserError(f"{run_dir} is in use: {who} works in it. Wait until it has ended, or stop it{stop}.")


def announce(run_dir: Path) -> None:
    """Note that this process works in a run's folder."""
    note = {
        "pid": os.getpid(),
        "started": psutil.Process().create_time(),
        "host": socket.gethostname(),
        "since": time.time(),
    }
    with contextlib.suppress(OSError):  # a full disk: the trainer's own logs report it
        (run_dir / NOTE).write_bytes(orjson.dumps(note))


def withdraw(run_dir: Path) -> None:
    """Take the note away."""
    with contextlib.suppress(OSError):  # the folder may be gone, and nobody else reads the note
        (run_dir / NOTE).unlink()


def noted(run_dir: Path) -> Writer | None:
    """The process that the note names; None where there is no note that can be read."""
    try:
        with (run_dir / NOTE).open("rb") as file:
            note = orjson.loads(file.read(MAX_NOTE_BYTES))
        started = float(note["started"])  # a note of an earlier version does not say since when
        found = Writer(int(note["pid"]), started, str(note["host"]), float(note.get("since", started)))
        str(found)  # a time that no calendar has
    except (OSError, ValueError, KeyError, TypeError, OverflowError, AttributeError):  # none, or half written
        return None
    return found


def is_alive(run_dir: Path) -> bool:
    """Whether the process that the note names is there; on another machine, whether it logged lately."""
    found = noted(run_dir)
    if found is None:
        return False
    if found.host != socket.gethostname():
        return time.time() - last_write(run_dir) < FRESH_S
    try:
        process = psutil.Process(found.pid)
        return abs(process.create_time() - found.started) < SAME_START_S and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.Error, ValueError, OverflowError):  # no such process, or no such number
        return False


def last_write(run_dir: Path) -> float:
    """When a log of the run was last written, in seconds since the epoch; 0 where there is none."""
    times = [0.0]
    for name in ("train_log.jsonl", "rollouts.jsonl", "events.jsonl"):
        with contextlib.suppress(OSError):
            times.append((run_dir / "logs" / name).stat().st_mtime)
    return max(times)
