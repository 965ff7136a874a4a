"""The worker processes of a pool: starts them, gives them items, reads their answers, and kills those that overrun."""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import subprocess
import threading
import time
from collections.abc import Iterable

from grpo_sdk.killable import worker as program
from grpo_sdk.killable.executor import Executor
from grpo_sdk.killable.fork_server import ForkServer
from grpo_sdk.killable.items import Item, ItemQueue
from grpo_sdk.killable.outcome import Outcome, Status
from grpo_sdk.killable.process import Launch, WorkerProcess

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


AHEAD_S = 0.004
"""Work that a worker may hold ahead, so that it need not wait for this process's interpreter lock (5 ms when another
thread wants it too). Payloads that take longer go one by one to whoever is free."""

MAX_DEPTH = 64
"""Payloads that a worker may hold at most."""

_MEAN_DECAY = 0.9
"""Decay of the mean handler time per answer: the mean follows a change of load within some twenty answers."""

LIVENESS_TICK_S = 0.1
"""Interval at which busy workers are checked for having exited with their socket held open by a process they forked."""

REAP_TICK_S = 0.01
"""Interval at which killed processes are polled for their exit status."""

MAX_FAILED_STARTS = 2
"""Consecutive failed starts after which there is a pause: one may be the machine, two are the target."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
"""Pause before the next attempt to start a worker; doubled with each failure."""

GRACE_S = 1.0
"""Time for idle workers to run their exit handlers when the pool is closed, and for dead ones to be reaped."""

KILLED = "was killed by SIGKILL"
"""Cause of death of a worker that somebody else has killed."""

MAX_LOSSES = 3
"""Workers that an item may lose through no fault of its own."""

SPARES = 1
"""Workers beyond those that may be busy at once."""

NEXT_SPARE_AFTER_S = 0.05
"""From the end of a worker to the start of the next spare: first the one that took its place gets its work."""

fork_lock = threading.Lock()
"""Held while a worker is started: a fork in between would copy descriptors that nobody knows yet into the child."""


class Supervisor(Executor):
    """The workers of a pool and the selector that hears them; belongs to the pool's thread.

    Workers are started when they are first needed and then kept up. After repeated failures to start, the next attempt
    waits for a pause to pass and for somebody to need a worker, so a broken target costs little and a repaired one is
    noticed.

    Once a payload has taken long or ended its worker, one more than may be busy waits as a spare with the target
    loaded: it takes the place of one that is killed, so that the next payload does not wait for a process to start.

    Args:
        launch: How workers are started.
        size: Most workers that may be busy at once.
        queue: Items that wait for a worker.
    """

    def __init__(self, launch: Launch, size: int, queue: ItemQueue) -> None:
        super().__init__(queue)
        self._launch, self._size = launch, size
        self._workers: list[WorkerProcess] = []
        self._dying: list[WorkerProcess] = []
        self._guard: Guard | None = None
        self._wanted = 0
        self._spare_due = math.inf
        self._failed_starts, self._last_failure, self._next_start = 0, "", 0.0
        self._last_lost: ForkServer | None = None
        self._next_check = 0.0
        self._mean_s = AHEAD_S

    @property
    def is_idle(self) -> bool:
        """Whether no item waits and no worker has one."""
        return not (self._queue.waiting or any(worker.held for worker in self._workers))

    # Items

    def dispatch(self) -> None:
        """Give items to workers, and start workers."""
        busy = sum(bool(worker.held) for worker in self._workers)
        needed = self._size if self.warming else len(self._queue.waiting) + busy
        if needed > self._wanted and time.monotonic() >= self._next_start:
            self._wanted = min(self._size, needed)
        depth = min(MAX_DEPTH, max(1, int(AHEAD_S / max(self._mean_s, AHEAD_S / MAX_DEPTH))))
        given: set[WorkerProcess] = set()
        while self._queue.waiting:
            free = [
                worker
                for worker in self._workers
                if worker.is_ready and len(worker.held) < depth and (worker.held or busy < self._wanted)
            ]
            if not free:
                break
            if item := self._queue.take():
                worker = min(free, key=lambda worker: len(worker.held))
                busy += not worker.held
                worker.give(item)
                given.add(worker)
        for worker in given:
            if not worker.flush():
                worker.listen(self.selector)
        spares = len(self._workers) - self._wanted
        is_stuck = bool(self._queue.waiting) and not self._workers
        if self.warming or is_stuck or spares < 0 or (spares < SPARES and time.monotonic() >= self._spare_due):
            self._staff()  # afterwards: to start a process takes a while

    def attend(self, worker: WorkerProcess, mask: int) -> None:
        """Write to a worker's socket and read from it, as the selector's `mask` says is possible."""
        if mask & selectors.EVENT_WRITE:
            worker.flush()
            worker.listen(self.selector)
        if mask & selectors.EVENT_READ:
            answers, is_open = worker.receive()
            for (kind, seconds), content in answers:
                self._accept(worker, kind, seconds, content)
                if worker not in self._workers:
                    return
            if not is_open:
                self._died(worker)

    def _accept(self, worker: WorkerProcess, kind: int, seconds: float, content: bytes) -> None:
        if kind == program.READY:
            worker.loaded(int(content))
        elif kind == program.BROKEN:
            self._kill(worker)
            self._start_failed(content.decode("utf-8", "replace"))
        elif not worker.held:  # something else wrote into the socket
            self._died(worker)
        else:
            item = worker.held.popleft()
            worker.restart_clock()
            self._failed_starts, self._next_start = 0, 0.0  # starting works
            self._mean_s = _MEAN_DECAY * self._mean_s + (1 - _MEAN_DECAY) * seconds
            if kind & program.ERROR:
                outcome = Outcome("error", why=content.decode("utf-8", "replace"), seconds=seconds)
            else:
                outcome = Outcome("ok", content, seconds=seconds)
            self._queue.finish(item, outcome)
            if kind & program.LEAVING:
                self._kill(worker)

    def patience_s(self) -> float | None:
        """Seconds to sleep: None when nothing can happen but a submission or a worker's end."""
        if self._dying:
            return REAP_TICK_S
        now = time.monotonic()
        soonest = min([worker.deadline for worker in self._workers], default=math.inf)
        if soonest != math.inf:
            soonest = min(soonest, now + LIVENESS_TICK_S)
        if self._spare_due > now:
            soonest = min(soonest, self._spare_due)
        return None if soonest == math.inf else max(0.0, soonest - now)

    def check_workers(self) -> None:
        """Reap killed workers, and handle those that are overdue or have exited."""
        if self._dying:
            self._dying = [worker for worker in self._dying if not worker.has_exited()]
        now = time.monotonic()
        check_liveness = now >= self._next_check
        if check_liveness:
            self._next_check = now + LIVENESS_TICK_S
        for worker in list(self._workers):
            is_overdue = now >= worker.deadline
            if check_liveness and worker.held and now - worker.since >= LIVENESS_TICK_S:
                worker.look()
                self._spare_due = min(self._spare_due, now)  # the payload may end with its worker's death
            has_exited = check_liveness and worker.deadline != math.inf and worker.has_exited()
            if not (is_overdue or has_exited):
                continue
            # Its answer may have come while this thread could not run: look before judging.
            self.attend(worker, selectors.EVENT_READ)
            if worker not in self._workers:
                continue
            if has_exited:
                self._died(worker)
            elif now >= worker.deadline:
                self._overdue(worker, now)

    def _overdue(self, worker: WorkerProcess, now: float) -> None:
        seconds = now - worker.since
        if not worker.is_ready:
            self._kill(worker)
            self._start_failed(f"the target was not loaded after {seconds:.3g} s")
            return
        has_used_its_time = worker.extend_deadline(now)
        if now < worker.deadline:
            return
        item = worker.held.popleft()
        self._mean_s = _MEAN_DECAY * self._mean_s + (1 - _MEAN_DECAY) * seconds
        self._kill(worker)
        if has_used_its_time:
            self._queue.finish(item, Outcome("timeout", why=f"no answer within {item.timeout_s:g} s", seconds=seconds))
        else:
            why = f"the machine is too busy: after {seconds:.3g} s it had not had a processor for {item.timeout_s:g} s"
            self._queue.finish(item, Outcome("unavailable", why=why, seconds=seconds))

    def _died(self, worker: WorkerProcess) -> None:
        """Handle a worker that ended by itself.

        The first item it held is the suspect. It gets one more worker, because the cause may have been something else:
        the kernel out of memory, an operator, a thread that an earlier item left behind.
        """
        seconds = time.monotonic() - worker.since
        suspect = worker.held.popleft() if worker.held else None
        self._kill(worker)
        how = worker.cause_of_death()
        worker.kill_orphans()
        if (server := worker.lost_server) is not None:
            self._lost(server, worker, suspect)
        elif suspect is None:
            self._start_failed(f"a worker {how} {'while idle' if worker.is_ready else 'while it loaded the target'}")
        elif suspect.is_repeatable and not suspect.has_killed:
            suspect.has_killed = True
            self._queue.put_back([suspect])
        else:
            why = f"its worker {how}{', twice' if suspect.has_killed else ''}"
            # An unrepeatable payload is not tried again where somebody else has killed the worker, e.g. the kernel.
            status: Status = "unavailable" if how == KILLED and not suspect.is_repeatable else "crashed"
            self._queue.finish(suspect, Outcome(status, why=why, seconds=seconds))

    def _lost(self, server: ForkServer, worker: WorkerProcess, item: Item | None) -> None:
        """Handle a worker that ended with the server it was forked from: one event for all, and no item's fault.

        An item that loses several may be what ends them.
        """
        if item is None:
            if not worker.is_ready and server is not self._last_lost:
                self._start_failed("the process that workers are forked from has ended")
        elif item.losses < MAX_LOSSES:
            item.losses += 1
            self._queue.put_back([item])
        else:
            why = f"the process that workers are forked from has ended {MAX_LOSSES + 1} times"
            self._queue.finish(item, Outcome("unavailable", why=why))
        self._last_lost = server

    # Processes

    def _staff(self) -> None:
        """Start the workers that are wanted, and the spare when it is due; none in a pause.

        Where none can be started, the items and futures that wait for one fail.
        """
        is_spare_due = self._launch.has_spare and self._wanted > 0 and time.monotonic() >= self._spare_due
        spares = SPARES if is_spare_due else 0
        while len(self._workers) < self._wanted + spares and time.monotonic() >= self._next_start:
            try:
                self._start()
            except OSError as error:
                self._start_failed(f"cannot start a process: {error}")
        is_full = sum(worker.is_ready for worker in self._workers) >= self._size
        if time.monotonic() < self._next_start:
            trouble = f"no worker for {self._launch.target}: {self._last_failure}"
            if not self._workers:
                self._queue.give_up(trouble)
            if not is_full:
                self.end_warming(trouble)
        if is_full:
            self.end_warming()

    def _start(self) -> None:
        with fork_lock:
            if self._guard is None and not program.HAS_KEEPER:
                self._guard = Guard()
            worker = WorkerProcess(self._launch)
            self._workers.append(worker)
        self._watch()
        self.selector.register(worker.channel, selectors.EVENT_READ, worker)
        worker.listen(self.selector)

    def _watch(self) -> None:
        if self._guard is not None:
            self._guard.watch(worker.group for worker in self._workers)

    def _start_failed(self, why: str) -> None:
        """Note that a worker ended before it answered anything."""
        self._last_failure = why
        pauses = self._failed_starts - MAX_FAILED_STARTS + 1
        self._failed_starts += 1
        if pauses >= 0:
            self._wanted = min(self._size, len(self._workers))
            self._next_start = time.monotonic() + min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(pauses, 16))

    def _kill(self, worker: WorkerProcess) -> None:
        """Kill a worker and its group; what it had not begun goes back to the front of the queue."""
        self._queue.put_back(worker.held)
        worker.held.clear()
        self.restarts += worker.is_ready
        self._workers.remove(worker)
        self.selector.unregister(worker.channel)
        worker.kill()
        self._watch()
        self._dying.append(worker)
        if worker.is_ready:
            self._spare_due = time.monotonic() + NEXT_SPARE_AFTER_S

    def shutdown(self) -> None:
        """End all: the idle may run their exit handlers, the others are killed."""
        give_up = time.monotonic() + GRACE_S
        for worker in self._workers:
            if worker.is_ready and not worker.held:
                worker.channel.close()  # end of file: it leaves by itself
            else:
                worker.kill()
        for worker in self._workers:
            worker.wait(give_up - time.monotonic())
            worker.kill()  # also what it left behind
        for worker in self._workers + self._dying:
            worker.wait(GRACE_S)
        if self._guard is not None:
            self._guard.close()
        self.selector.close()

    def abandon(self) -> None:
        """In a forked child: close what was inherited; the processes are the parent's."""
        for worker in self._workers + self._dying:
            worker.abandon()
        if self._guard is not None:
            self._guard.abandon()
        self.selector.close()
