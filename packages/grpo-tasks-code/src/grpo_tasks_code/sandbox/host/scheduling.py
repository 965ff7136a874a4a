"""What a busy machine does to a program: the time that it was ready to run and another process had the processor.

Linux counts that for each thread. It is none of the program's doing, unlike the time that it computes or sleeps, so it
does not count against the program's limit. Where the kernel does not tell, nothing is subtracted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_STATE, _PARENT, _USER_TICKS, _SYSTEM_TICKS = 0, 1, 11, 12
"""Fields of /proc/PID/stat, counted from the one behind the name."""


@dataclass(frozen=True, slots=True)
class Scheduling:
    """Of a process, since it began.

    Attributes:
        cpu_s: Processor seconds of all its threads.
        delay_s: Seconds that one of its threads waited for a processor, the one that waited longest; without a wait
            that goes on.
        is_ready: Whether it runs, or waits for a processor.
    """

    cpu_s: float = 0.0
    delay_s: float = 0.0
    is_ready: bool = False


def scheduling_of(pid: int) -> Scheduling:
    """What the kernel has counted for a process; nothing where it does not tell, or the process has ended."""
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
    """Seconds that the calling thread was ready to run, since it began, and another had the processor."""
    try:
        return int((_PROC / "thread-self/schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, LookupError, ValueError):
        return 0.0


def descendant(pid: int, generations: int) -> int | None:
    """The latest child, or child of a child, of a process; None if there is none, or it cannot be seen."""
    for _ in range(generations):
        children = [child for child, parent in parents() if parent == pid]
        if not children:
            return None
        pid = max(children)
    return pid


def parents() -> Iterator[tuple[int, int]]:
    """Each process and its parent."""
    try:
        entries = [entry for entry in os.listdir(_PROC) if entry.isdigit()]
    except OSError:
        return
    for entry in entries:
        try:
            yield int(entry), int(_stat(int(entry))[_PARENT])
        except (OSError, LookupError):  # it has ended
            continue


def _stat(pid: int) -> list[str]:
    text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    return text.rpartition(")")[2].split()
