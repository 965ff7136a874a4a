"""Exclusive access to a run's folder: a lock, and a note that names the process and outlives a killed one."""

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

from grpo_sdk.errors import UserError
from grpo_sdk.files import replace_file

LOCK = Path("logs") / "run.lock"
"""File locked by the process that works in a run's folder; the system unlocks it when that process ends."""

NOTE = Path("logs") / "process.json"
"""File that names the process that works in a run's folder; removed by an orderly end."""

SAME_START_S = 2.0
"""Two readings of a process's start time differ by less; those of another process with the same number by more."""

FRESH_S = 15 * 60.0
"""A run on another machine counts as alive if a log was written this recently: longer than nearly every step."""

MAX_NOTE_BYTES = 4096
"""Largest note that is read; a note has about a hundred bytes."""


_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL})
"""Errors of file systems without locks, as NFS without its lock service; filelock handles ENOSYS itself."""


@dataclass(frozen=True, slots=True)
class Writer:
    """The process named in a note.

    Attributes:
        pid: Process id.
        started: Start time of the process, in seconds since the epoch.
        host: Name of its machine.
        since: Time at which it began to work in the folder.
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
    """Lock a run's folder against other processes while the block runs, and note this process in it.

    The system releases the lock when its process ends, so a killed run leaves none behind; NFS and most cluster file
    systems share it with other machines. Where there are no locks, the note decides.

    Yields:
        A warning for the user if another machine seems to work in the folder in spite of the lock; else empty.

    Raises:
        UserError: another process works in the folder (names it), or the lock file cannot be made.
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
            # Not refused: after a kill, a scheduler may restart the job on another machine at once.
            warning = f"{run_dir}: the last writer was {other}, and its log is fresh; make sure that it has ended"
    try:
        announce(run_dir)
        yield warning
    finally:
        withdraw(run_dir)
        lock.release()


def check_unlocked(run_dir: Path) -> None:
    """Refuse early what `working_in` would refuse, as far as a lock says it.

    Raises:
        UserError: another process works in the folder; names it.
    """
    try:
        with filelock.FileLock(run_dir / LOCK, timeout=0):
            return
    except filelock.Timeout:
        raise _refusal(run_dir) from None
    except OSError:  # no locks here, or a folder that cannot be written: `working_in` decides
        return


def _refusal(run_dir: Path) -> UserError:
    other = noted(run_dir)
    who = "another process" if other is None else str(other)
    stop = "" if other is None or other.host != socket.gethostname() else f" (kill {other.pid} saves the run)"
    return UserError(f"{run_dir} is in use: {who} works in it. Wait until it has ended, or stop it{stop}.")


def announce(run_dir: Path) -> None:
    """Write the note that names this process."""
    note = {
        "pid": os.getpid(),
        "started": psutil.Process().create_time(),
        "host": socket.gethostname(),
        "since": time.time(),
    }
    with contextlib.suppress(OSError):  # a full disk: the trainer's own logs report it
        replace_file(run_dir / NOTE, orjson.dumps(note))


def withdraw(run_dir: Path) -> None:
    """Remove the note."""
    with contextlib.suppress(OSError):  # the folder may have been removed
        (run_dir / NOTE).unlink()


def noted(run_dir: Path) -> Writer | None:
    """Read the note; None if there is no readable one."""
    try:
        with (run_dir / NOTE).open("rb") as file:
            note = orjson.loads(file.read(MAX_NOTE_BYTES))
        writer = Writer(int(note["pid"]), float(note["started"]), str(note["host"]), float(note["since"]))
        str(writer)  # raises for a time outside the calendar
    except (OSError, ValueError, KeyError, TypeError, OverflowError, AttributeError):  # missing, or half written
        return None
    return writer


def is_alive(run_dir: Path) -> bool:
    """Whether the process named in the note is alive; on another machine, whether it has logged recently."""
    writer = noted(run_dir)
    if writer is None:
        return False
    if writer.host != socket.gethostname():
        return time.time() - last_write(run_dir) < FRESH_S
    try:
        process = psutil.Process(writer.pid)
        return abs(process.create_time() - writer.started) < SAME_START_S and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.Error, ValueError, OverflowError):  # no such process, or not a process id
        return False


def last_write(run_dir: Path) -> float:
    """Return the time at which a log of the run was last written, in seconds since the epoch; 0 without logs."""
    times = [0.0]
    for name in ("train_log.jsonl", "rollouts.jsonl", "events.jsonl"):
        with contextlib.suppress(OSError):
            times.append((run_dir / "logs" / name).stat().st_mtime)
    return max(times)
