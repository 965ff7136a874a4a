"""Whether a run's process is alive: a note of it in the run's folder, which a killed one leaves behind."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from pathlib import Path

import orjson
import psutil

NOTE = Path("logs") / "process.json"
"""Which process works in a run's folder; gone when it has ended in order."""

SAME_START_S = 2.0
"""Two readings of one process's start differ by less; another process of the same number by more."""

FRESH_S = 15 * 60.0
"""A run on another machine counts as alive while a log was written so recently: longer than nearly every step."""

MAX_NOTE_BYTES = 4096
"""A note has about a hundred."""


def announce(run_dir: Path) -> None:
    """Note that this process works in a run's folder."""
    note = {"pid": os.getpid(), "started": psutil.Process().create_time(), "host": socket.gethostname()}
    (run_dir / NOTE).write_bytes(orjson.dumps(note))


def withdraw(run_dir: Path) -> None:
    """Take the note away."""
    with contextlib.suppress(OSError):  # the folder may be gone, and nobody else reads the note
        (run_dir / NOTE).unlink()


def is_alive(run_dir: Path) -> bool:
    """Whether the process that the note names is there; on another machine, whether it logged lately."""
    try:
        with (run_dir / NOTE).open("rb") as file:
            note = orjson.loads(file.read(MAX_NOTE_BYTES))
        pid, started, host = int(note["pid"]), float(note["started"]), str(note["host"])
    except (OSError, ValueError, KeyError, TypeError, OverflowError):  # none, or half written: nothing is known to run
        return False
    if host != socket.gethostname():
        return time.time() - last_write(run_dir) < FRESH_S
    try:
        process = psutil.Process(pid)
        return abs(process.create_time() - started) < SAME_START_S and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.Error, ValueError, OverflowError):  # no such process, or no such number
        return False


def last_write(run_dir: Path) -> float:
    """When a log of the run was last written, in seconds since the epoch; 0 where there is none."""
    times = [0.0]
    for name in ("train_log.jsonl", "rollouts.jsonl", "events.jsonl"):
        with contextlib.suppress(OSError):
            times.append((run_dir / "logs" / name).stat().st_mtime)
    return max(times)
