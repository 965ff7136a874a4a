"""Scheduling delays: the time for which a program was ready to run while another process had the processor.

Linux counts it for each thread. It does not count against the program's limit, unlike the time for which the program
computes or sleeps. Where the kernel does not report it, nothing is subtracted.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_STATE, _USER_TICKS, _SYSTEM_TICKS = 0, 11, 12
"""Fields of /proc/PID/stat, counted from the one behind the name."""


@dataclass(frozen=True, slots=True)
class Scheduling:
    """Scheduling counts of a process since its start.

    Attributes:
        cpu_s: Processor seconds of all threads.
        delay_s: Seconds for which the thread that waited longest was waiting for a processor; a wait that goes on is
            not included.
        is_ready: Whether the process runs or waits for a processor.
    """

    cpu_s: float = 0.0
    delay_s: float = 0.0
    is_ready: bool = False


def scheduling_of(pid: int) -> Scheduling:
    """Return the counts of a process; zeros if the kernel does not report them, or the process has ended."""
    try:
        fields = _stat(pid)
        delays_ns = [
            int(thread.joinpath("schedstat").read_text(encoding="ascii").split()[1])
            for thread in (_PROC / str(pid) / "task").iterdir()
        ]
    except (OSError, LookupError, ValueError):
        return Scheduling()
    ticks = int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])
    return Scheduling(ticks / os.sysconf("SC_CLK_TCK"), max(delays_ns, default=0) / 1e9, fields[_STATE] == "R")


def delay_of_this_thread_s() -> float:
    """Return the seconds for which the calling thread was ready to run while another had the processor."""
    try:
        return int((_PROC / "thread-self/schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, LookupError, ValueError):
        return 0.0


def descendant(pid: int, generations: int) -> int | None:
    """Return the latest child, or child of a child, of a process; None if there is none, or it is not visible."""
    import psutil

    try:
        for _ in range(generations):
            pid = max(child.pid for child in psutil.Process(pid).children())
    except (psutil.Error, OSError, ValueError):
        return None
    return pid


def _stat(pid: int) -> list[str]:
    text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    return text.rpartition(")")[2].split()
