"""The time that a worker was ready to run while other processes had the processors.

Linux counts that for each thread. It is none of the handler's doing, unlike the time that it computes or sleeps, so it
does not count against the limit of a payload. Where the kernel does not tell, nothing is subtracted.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

PATIENCE, PATIENCE_S = 3.0, 10.0
"""A worker that waits for a processor gets this many times its limit and so many seconds more, all in all."""

RECHECK_S = 0.02
"""Given to a worker that may be waiting for a processor when its time is over, until the kernel has counted the wait;
longer than the kernel takes to count the time of a process that runs."""

_FIELDS_BYTES = 64


def patience_s(limit_s: float) -> float:
    """Seconds by the clock after which a worker with that limit is ended, however busy the machine."""
    return PATIENCE * limit_s + PATIENCE_S


class Waits:
    """Measures the time that a worker has waited for a processor since it began a payload.

    The worker's main thread is measured from the start of the payload, which costs 3 µs. Its other threads, and the
    processes that it has, are measured from the first `look`, and whatever begins later from its own start. The one
    that waited longest counts.

    Args:
        pid: Process id of the worker.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._fd: int | None = None
        with contextlib.suppress(OSError):  # the kernel does not tell, or the worker has ended
            self._fd = os.open(f"/proc/{pid}/schedstat", os.O_RDONLY)
        self._is_complete = False
        self._cpu_s = 0.0
        self._seen_cpu_s: float | None = None
        self._delays_s: dict[int, float] = {}

    def begin(self) -> None:
        """Note the start of a payload."""
        self._cpu_s, delay_s = self._read()
        self._seen_cpu_s = None
        self._delays_s = {self._pid: delay_s}
        self._is_complete = False

    def look(self) -> None:
        """Note what other threads and processes of the worker waited before now; only the first look counts."""
        if self._fd is not None and not self._is_complete:
            self._is_complete = True
            self._delays_s = {**dict(_delays_s(self._pid)), **self._delays_s}

    def left_s(self, limit_s: float, spent_s: float) -> float:
        """Seconds that remain of a payload's limit, `spent_s` after it began."""
        if self._fd is None:
            return limit_s - spent_s
        cpu_s, waited_s = self._read()
        cpu_s, waited_s = cpu_s - self._cpu_s, waited_s - self._delays_s[self._pid]
        if self._is_complete:
            others = (delay_s - self._delays_s.get(thread, 0.0) for thread, delay_s in _delays_s(self._pid))
            waited_s = max(waited_s, *others, 0.0)
        left_s = limit_s - (spent_s - waited_s)
        if left_s > 0:
            self._seen_cpu_s = None
            return left_s
        # The kernel counts a wait when it is over: time that is neither was sleep, or is a wait that goes on.
        is_unknown = spent_s - cpu_s - waited_s > RECHECK_S and self._seen_cpu_s in (None, cpu_s)
        self._seen_cpu_s = cpu_s
        return RECHECK_S if is_unknown and _is_ready(self._pid) else left_s

    def _read(self) -> tuple[float, float]:
        """Seconds on a processor, and waiting for one, of the main thread."""
        if self._fd is None:
            return 0.0, 0.0
        try:
            fields = os.pread(self._fd, _FIELDS_BYTES, 0).split()
            return int(fields[0]) / 1e9, int(fields[1]) / 1e9
        except (OSError, LookupError, ValueError):
            return 0.0, 0.0

    def close(self) -> None:
        """Close the kernel's file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _delays_s(pid: int) -> Iterator[tuple[int, float]]:
    """The threads of a process and of all that it has started, and how long each has waited for a processor."""
    with contextlib.suppress(OSError, LookupError, ValueError):  # it has ended, or the kernel does not tell
        for thread in Path(f"/proc/{pid}/task").iterdir():
            yield int(thread.name), int((thread / "schedstat").read_bytes().split()[1]) / 1e9
            for child in (thread / "children").read_bytes().split():
                yield from _delays_s(int(child))


def _is_ready(pid: int) -> bool:
    """Whether the main thread of a process runs, or waits for a processor."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"R"
    except (OSError, LookupError):
        return False
