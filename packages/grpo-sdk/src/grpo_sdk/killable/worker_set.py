from __future__ import annotations

import contextlib
import math
import os
import selectors
import subprocess
import threading
import time
from collections.abc import Iterable

from grpo_sdk.killable.process import Launch, WorkerProcess
from grpo_sdk.killable.worker import HAS_KEEPER

# Keeps the last line it read; at end of file the pool's process is gone, however it died.
_SCRIPT = 'while read -r line; do groups=$line; done; for group in $groups; do kill -s KILL -- "-$group"; done'


class Guard:
    """A tiny shell that kills the workers' process groups when this process dies, where workers have no keeper.

    An end-of-file reaches only a worker that is reading: a busy worker, and what a worker started in its own group,
    would outlive a trainer killed by SIGKILL. Where there is no /bin/sh, the end-of-file is all there is.
    """

    def __init__(self) -> None:
        read_end, self._write_end = os.pipe()
        try:
            self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
                ["/bin/sh", "-c", _SCRIPT],
                stdin=read_end,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the trainer
            )
        except OSError:
            self._process = None
        finally:
            os.close(read_end)

    def watch(self, groups: Iterable[int]) -> None:
        """Replace the groups to kill. One that is being killed leaves the list before its number can be used again."""
        with contextlib.suppress(OSError):  # somebody killed the guard: the other two remain
            os.write(self._write_end, (" ".join(map(str, groups)) + "\n").encode())

    def close(self) -> None:
        """Dismiss the guard."""
        self.watch(())  # at end of file it kills the groups of the last line: none
        os.close(self._write_end)
        if self._process is not None:
            self._process.wait()

    def abandon(self) -> None:
        """Forget it in a forked child: it is the parent's."""
        os.close(self._write_end)
        if self._process is not None:
            self._process.returncode = 0  # not our child: nothing to wait for


MAX_FAILED_STARTS = 2
"""Consecutive failed starts after which there is a pause: one may be the machine, two are the target."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
"""Pause before the next attempt to start a worker; doubled with each failure."""

GRACE_S = 1.0
"""Time for idle workers to run their exit handlers when the pool is closed, and for dead ones to be reaped."""

SPARES = 1
"""Workers beyond those that may be busy at once."""

NEXT_SPARE_AFTER_S = 0.05
"""From the end of a worker to the start of the next spare: first the one that took its place gets its work."""

fork_lock = threading.Lock()
"""Held while a worker is started: a fork in between would copy descriptors that nobody knows yet into the child."""


class WorkerSet:
    """The workers of a pool and the selector that hears them; belongs to the pool's thread.

    Workers are started when they are first needed and then kept up. After repeated failures to start, the next attempt
    waits for a pause to pass and for somebody to need a worker, so a broken target costs little and a repaired one is
    noticed.

    Once a payload has taken long or ended its worker, one more than may be busy waits as a spare with the target
    loaded: it takes the place of one that is killed, so that the next payload does not wait for a process to start.

    Args:
        launch: How workers are started.
        size: Most workers that may be busy at once.
        start_timeout_s: Limit of loading the target.

    Attributes:
        spare_due: When the spare is started, by the monotonic clock; infinite while none is needed.
    """

    def __init__(self, launch: Launch, size: int, start_timeout_s: float) -> None:
        self.selector = selectors.DefaultSelector()
        self.workers: list[WorkerProcess] = []
        self.restarts = 0
        self.spare_due = math.inf
        self._launch, self._size, self._start_timeout_s = launch, size, start_timeout_s
        self._dying: list[WorkerProcess] = []
        self._guard: Guard | None = None
        self._wanted = 0
        self._failed_starts = 0
        self._last_failure = ""
        self._next_start = 0.0

    @property
    def is_full(self) -> bool:
        """Whether as many workers are ready as may be busy."""
        return sum(worker.is_ready for worker in self.workers) >= self._size

    @property
    def may_begin(self) -> bool:
        """Whether one more worker may be busy: the spare is, in the place of another."""
        return sum(bool(worker.held) for worker in self.workers) < self._wanted

    @property
    def is_paused(self) -> bool:
        """Whether no worker will be started for now."""
        return time.monotonic() < self._next_start

    @property
    def has_dying(self) -> bool:
        """Whether killed workers wait to be reaped."""
        return bool(self._dying)

    @property
    def trouble(self) -> str:
        """The reason why there is no worker."""
        return f"no worker for {self._launch.target}: {self._last_failure}"

    def want(self, needed: int) -> None:
        """Have `needed` workers, or as many as were ever needed, at most `size`."""
        if not self.is_paused:
            self._wanted = min(self._size, max(self._wanted, needed))

    def start(self) -> None:
        """Start the workers that are wanted, and the spare when it is due; none in a pause."""
        is_due = self._launch.has_spare and self._wanted > 0 and time.monotonic() >= self.spare_due
        spares = SPARES if is_due else 0
        while len(self.workers) < self._wanted + spares and not self.is_paused:
            try:
                self._start_one()
            except OSError as error:
                self.start_failed(f"cannot start a process: {error}")

    def _start_one(self) -> None:
        with fork_lock:
            if self._guard is None and not HAS_KEEPER:
                self._guard = Guard()
            worker = WorkerProcess(self._launch, self._start_timeout_s)
            self.workers.append(worker)
        self._watch()
        self.selector.register(worker.channel, selectors.EVENT_READ, worker)
        self.listen(worker)

    def _watch(self) -> None:
        if self._guard is not None:
            self._guard.watch(worker.group for worker in self.workers)

    def start_failed(self, why: str) -> None:
        """Note that a worker ended before it answered anything."""
        self._last_failure = why
        pauses = self._failed_starts - MAX_FAILED_STARTS + 1
        self._failed_starts += 1
        if pauses >= 0:
            self._wanted = min(self._size, len(self.workers))
            self._next_start = time.monotonic() + min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(pauses, 16))

    def is_ready(self, worker: WorkerProcess, pid: int) -> None:
        """Note that a worker has loaded the target, and its process."""
        worker.loaded(pid)

    def expect_death(self) -> None:
        """Have a spare: a payload may end with its worker's death."""
        self.spare_due = min(self.spare_due, time.monotonic())

    def proved_useful(self) -> None:
        """Note that a worker answered: starting works."""
        self._failed_starts, self._next_start = 0, 0.0

    def listen(self, worker: WorkerProcess) -> None:
        """Wait for room in a worker's socket only while bytes wait for it."""
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if worker.is_sending else 0)
        if self.selector.get_key(worker.channel).events != events:
            self.selector.modify(worker.channel, events, worker)

    def next_deadline(self) -> float:
        """The earliest, by the monotonic clock; infinite when all are idle."""
        return min((worker.deadline for worker in self.workers), default=math.inf)

    def kill(self, worker: WorkerProcess) -> None:
        """Kill a worker and its group."""
        self.restarts += worker.is_ready
        self.workers.remove(worker)
        self.selector.unregister(worker.channel)
        worker.kill()
        self._watch()
        self._dying.append(worker)
        if worker.is_ready:
            self.spare_due = time.monotonic() + NEXT_SPARE_AFTER_S

    def reap(self) -> None:
        """Collect the exit status of those that have ended, so that none stays a zombie."""
        if self._dying:
            self._dying = [worker for worker in self._dying if not worker.has_exited()]

    def shutdown(self) -> None:
        """End all: the idle may run their exit handlers, the others are killed."""
        give_up = time.monotonic() + GRACE_S
        for worker in self.workers:
            if worker.is_ready and not worker.held:
                worker.channel.close()  # end of file: it leaves by itself
            else:
                worker.kill()
        for worker in self.workers:
            worker.wait(give_up - time.monotonic())
            worker.kill()  # also what it left behind
        for worker in self.workers + self._dying:
            worker.wait(GRACE_S)
        if self._guard is not None:
            self._guard.close()
        self.selector.close()

    def abandon(self) -> None:
        """In a forked child: close what was inherited; the processes are the parent's."""
        for worker in self.workers + self._dying:
            worker.abandon()
        if self._guard is not None:
            self._guard.abandon()
        self.selector.close()
