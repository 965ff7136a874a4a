from __future__ import annotations

import atexit
import contextlib
import math
import os
import selectors
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import fields

from grpo_core.errors import InfrastructureError
from grpo_core.killable import worker as program
from grpo_core.killable.importing import refuse_at_import
from grpo_core.killable.outcome import Outcome, PoolStats
from grpo_core.killable.process import Answer, Item, Launch, WorkerProcess
from grpo_core.killable.quarantine import Quarantine
from grpo_core.killable.worker_set import WorkerSet, fork_lock

AHEAD_S = 0.004
"""Work that a worker may hold ahead, so that it need not wait for this process's interpreter lock (5 ms when another
thread wants it too). Payloads that take longer go one by one to whoever is free."""

MAX_DEPTH = 16
"""Payloads that a worker may hold at most."""

_MEAN_DECAY = 0.9
"""Of the mean handler time, per answer: it follows a change of load within some twenty answers."""

LIVENESS_TICK_S = 0.1
"""How often busy workers are checked for having exited with their socket held open by a process they forked."""

REAP_TICK_S = 0.01
"""How often killed processes are polled for their exit status."""


class Dispatcher:
    """One thread that gives items to workers, enforces deadlines and replaces the dead.

    Everything but the inbox belongs to the thread, so nothing else is locked. The thread lives as long as its workers:
    Linux sends the parent-death signal when the thread that started a process ends.
    """

    def __init__(self, launch: Launch, size: int, start_timeout_s: float) -> None:
        self._launch, self._size, self._start_timeout_s = launch, size, start_timeout_s
        self._quarantine = Quarantine()
        self._is_closed = False
        self._reset()
        _live.add(self)

    def _reset(self) -> None:
        """Be a pool that has no thread and no worker."""
        self._lock = threading.RLock()  # re-entrant: a collection inside it may run a finalizer that wants it
        self._thread: threading.Thread | None = None
        self._wake_pipe: tuple[int, int] | None = None
        self._is_asleep = False
        self._is_draining = False
        self._inbox: deque[Item] = deque()
        self._asked_to_warm: deque[Future[None]] = deque()
        # From here on the thread's own.
        self._worker_set: WorkerSet | None = None
        self._queue: deque[Item] = deque()
        self._warming: list[Future[None]] = []
        self._next_check = 0.0
        self._mean_s = AHEAD_S
        self._counts = {field.name: 0 for field in fields(PoolStats)}

    # What other threads call

    @property
    def stats(self) -> PoolStats:
        """Counts so far."""
        worker_set = self._worker_set
        if worker_set is not None:
            self._counts["restarts"] = worker_set.restarts
        return PoolStats(**self._counts)

    def put(self, items: Iterable[Item]) -> None:
        """Queue items.

        Raises:
            InfrastructureError: the pool is closed.
            UserError: a task file is being imported.
        """
        with self._lock:
            self._require_open()
            self._inbox.extend(items)
            self._wake()

    def warm(self) -> Future[None]:
        """Start every worker; the future is done when all are ready.

        Raises:
            InfrastructureError: the pool is closed.
        """
        future: Future[None] = Future()
        with self._lock:
            self._require_open()
            self._asked_to_warm.append(future)
            self._wake()
        return future

    def stop(self, *, drain: bool) -> None:
        """End the thread and its workers.

        Args:
            drain: After what has been queued, and without waiting: for a pool that nobody holds any more, whose last
                futures still get their outcomes. Otherwise now.
        """
        with self._lock:
            self._is_closed, self._is_draining = True, drain
            thread = self._thread
            if thread is not None:
                self._wake()
        if thread is not None and not drain and thread is not threading.current_thread():
            thread.join()

    def abandon(self) -> None:
        """In a forked child: drop the parent's thread, workers and items, and start afresh."""
        if self._worker_set is not None:
            self._worker_set.abandon()
        for fd in self._wake_pipe or ():
            os.close(fd)
        self._reset()

    def _require_open(self) -> None:
        if self._is_closed:
            raise InfrastructureError(f"the pool of {self._launch.name!r} workers is closed; make a new one.")
        if self._thread is None:
            refuse_at_import(f"the pool of {self._launch.name!r} workers")

    def _wake(self) -> None:
        if self._thread is None:
            self._wake_pipe = os.pipe()
            for fd in self._wake_pipe:
                os.set_blocking(fd, False)
            worker_set = WorkerSet(self._launch, self._size, self._start_timeout_s)
            worker_set.selector.register(self._wake_pipe[0], selectors.EVENT_READ)
            self._worker_set = worker_set
            # Daemonic: the interpreter joins other threads before it runs the exit handler that stops this one.
            thread = threading.Thread(
                target=self._run, args=(worker_set,), name=f"killable-{self._launch.name}", daemon=True
            )
            thread.start()
            self._thread = thread
        elif self._is_asleep and self._wake_pipe is not None:
            self._is_asleep = False
            with contextlib.suppress(BlockingIOError):  # full: it will wake
                os.write(self._wake_pipe[1], b"\0")

    # The thread

    def _run(self, worker_set: WorkerSet) -> None:
        reason = "the pool was closed"
        try:
            while not self._is_done(worker_set):
                self._take_inbox(worker_set)
                self._look_ahead(worker_set)
                self._assign(worker_set)
                self._staff(worker_set)  # afterwards: to start a process takes a while
                # Set before the inbox is looked at again: who fills it afterwards wakes this thread.
                self._is_asleep = True
                events = worker_set.selector.select(self._patience(worker_set))
                self._is_asleep = False
                for key, mask in events:
                    if key.data is None:
                        os.read(key.fd, 4096)
                    else:
                        self._attend(worker_set, key.data, mask)
                worker_set.reap()
                self._check_workers(worker_set)
        except BaseException as error:
            reason = f"the pool failed: {program.describe(error)}"
            raise
        finally:
            self._shut_down(worker_set, reason)

    def _is_done(self, worker_set: WorkerSet) -> bool:
        if not self._is_draining:
            return self._is_closed
        waiting = self._inbox or self._asked_to_warm or self._queue
        return not (waiting or any(worker.held for worker in worker_set.workers))

    def _patience(self, worker_set: WorkerSet) -> float | None:
        """Seconds to sleep: None when nothing can happen but a submission or a worker's end."""
        if self._inbox or self._asked_to_warm or self._is_done(worker_set):
            return 0.0
        if worker_set.has_dying:
            return REAP_TICK_S
        deadline, now = worker_set.next_deadline(), time.monotonic()
        soonest = deadline if deadline == math.inf else min(deadline, now + LIVENESS_TICK_S)
        if worker_set.spare_due > now:
            soonest = min(soonest, worker_set.spare_due)
        return None if soonest == math.inf else max(0.0, soonest - now)

    def _take_inbox(self, worker_set: WorkerSet) -> None:
        while self._inbox:
            item = self._inbox.popleft()
            if not self._answer_from_quarantine(item):
                self._queue.append(item)
        while self._asked_to_warm:
            self._warming.append(self._asked_to_warm.popleft())

    def _answer_from_quarantine(self, item: Item) -> bool:
        outcome = self._quarantine.find(item.payload, item.timeout_s)
        if outcome is None:
            return False
        self._counts["quarantined"] += 1
        self._settle(item, outcome)
        return True

    def _settle(self, item: Item, outcome: Outcome) -> None:
        """Give the caller the outcome, or go on with the payload that stands in for one that timed out."""
        if outcome.status != "timeout" or item.fallback is None:
            item.resolve(outcome)
            return
        item.payload, item.fallback, item.timeout, item.has_killed = item.fallback, None, outcome, False
        self._queue.appendleft(item)

    def _look_ahead(self, worker_set: WorkerSet) -> None:
        """Say how many workers are needed."""
        if self._warming:
            worker_set.want(self._size)
            worker_set.spare_due = 0.0
        else:
            worker_set.want(len(self._queue) + sum(bool(worker.held) for worker in worker_set.workers))

    def _staff(self, worker_set: WorkerSet) -> None:
        """Have enough workers, or tell those who wait that there are none."""
        worker_set.start()
        if worker_set.is_paused:
            if not worker_set.workers:
                self._give_up(self._queue, worker_set.trouble)
            if not worker_set.is_full:
                self._give_up_warming(worker_set.trouble)
        if self._warming and worker_set.is_full:
            while self._warming:
                self._warming.pop().set_result(None)

    def _give_up(self, items: deque[Item], why: str) -> None:
        while items:
            self._counts["unavailable"] += 1
            items.popleft().resolve(Outcome("unavailable", why=why))

    def _give_up_warming(self, why: str) -> None:
        while self._warming:
            self._warming.pop().set_exception(InfrastructureError(why))

    def _assign(self, worker_set: WorkerSet) -> None:
        depth = min(MAX_DEPTH, max(1, int(AHEAD_S / max(self._mean_s, AHEAD_S / MAX_DEPTH))))
        while self._queue:
            may_begin = worker_set.may_begin
            worker = min(
                (
                    worker
                    for worker in worker_set.workers
                    if worker.is_ready and len(worker.held) < depth and (worker.held or may_begin)
                ),
                key=lambda worker: len(worker.held),
                default=None,
            )
            if worker is None:
                return
            item = self._queue.popleft()
            # Looked up again: its twin may have been quarantined meanwhile.
            if item.begin() and not self._answer_from_quarantine(item):
                worker.give(item)
                worker_set.listen(worker)

    def _attend(self, worker_set: WorkerSet, worker: WorkerProcess, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            worker.flush()
            worker_set.listen(worker)
        if mask & selectors.EVENT_READ:
            answers, is_open = worker.receive()
            for answer in answers:
                self._accept(worker_set, worker, answer)
                if worker not in worker_set.workers:
                    return
            if not is_open:
                self._died(worker_set, worker)

    def _accept(self, worker_set: WorkerSet, worker: WorkerProcess, answer: Answer) -> None:
        if answer.kind == program.READY:
            worker_set.is_ready(worker, int(answer.value))
            return
        if answer.kind == program.BROKEN:
            worker_set.kill(worker)
            worker_set.start_failed(answer.value.decode("utf-8", "replace"))
            return
        if not worker.held:  # something else wrote into the socket
            self._died(worker_set, worker)
            return
        item = worker.held.popleft()
        worker.restart_clock()
        worker_set.proved_useful()
        self._took(answer.seconds)
        self._counts["answered"] += 1
        if answer.kind & program.ERROR:
            item.resolve(Outcome("error", why=answer.value.decode("utf-8", "replace"), seconds=answer.seconds))
        else:
            item.resolve(Outcome("ok", answer.value, seconds=answer.seconds))
        if answer.kind & program.LEAVING:
            self._kill(worker_set, worker)

    def _check_workers(self, worker_set: WorkerSet) -> None:
        now = time.monotonic()
        check_liveness = now >= self._next_check
        if check_liveness:
            self._next_check = now + LIVENESS_TICK_S
        for worker in list(worker_set.workers):
            is_overdue = now >= worker.deadline
            if check_liveness and now - worker.since >= LIVENESS_TICK_S:
                worker.look()
            has_exited = check_liveness and worker.deadline != math.inf and worker.has_exited()
            if not (is_overdue or has_exited):
                continue
            # Its answer may have come while this thread could not run: look before judging.
            self._attend(worker_set, worker, selectors.EVENT_READ)
            if worker not in worker_set.workers:
                continue
            if has_exited:
                self._died(worker_set, worker)
            elif now >= worker.deadline:
                self._overdue(worker_set, worker, now)

    def _overdue(self, worker_set: WorkerSet, worker: WorkerProcess, now: float) -> None:
        seconds = now - worker.since
        if not worker.is_ready:
            worker_set.kill(worker)
            worker_set.start_failed(f"the target was not loaded after {seconds:.3g} s")
            return
        has_had_its_time = worker.extend_deadline(now)
        if now < worker.deadline:
            return
        item = worker.held.popleft()
        self._took(seconds)
        if has_had_its_time:
            outcome = Outcome("timeout", why=f"no answer within {item.timeout_s:g} s", seconds=seconds)
            self._counts["timeouts"] += 1
            self._quarantine.admit(item.payload, item.timeout_s, outcome)
        else:
            why = f"the machine is too busy: after {seconds:.3g} s it had not had a processor for {item.timeout_s:g} s"
            outcome = Outcome("unavailable", why=why, seconds=seconds)
            self._counts["unavailable"] += 1
        self._kill(worker_set, worker)
        self._settle(item, outcome)

    def _took(self, seconds: float) -> None:
        self._mean_s = _MEAN_DECAY * self._mean_s + (1 - _MEAN_DECAY) * seconds

    def _died(self, worker_set: WorkerSet, worker: WorkerProcess) -> None:
        """Handle a worker that ended by itself.

        The first item it held is the suspect. It gets one more worker, because the cause may have been something else:
        the kernel out of memory, an operator, a thread that an earlier item left behind.
        """
        seconds = time.monotonic() - worker.since
        suspect = worker.held.popleft() if worker.held else None
        self._kill(worker_set, worker)
        how = worker.cause_of_death()
        worker.kill_orphans()
        if suspect is None:
            worker_set.start_failed(
                f"a worker {how} {'while idle' if worker.is_ready else 'while it loaded the target'}"
            )
        elif not suspect.has_killed:
            suspect.has_killed = True
            self._queue.appendleft(suspect)
        else:
            self._counts["crashes"] += 1
            outcome = Outcome("crashed", why=f"its worker {how}, twice", seconds=seconds)
            self._quarantine.admit(suspect.payload, suspect.timeout_s, outcome)
            suspect.resolve(outcome)

    def _kill(self, worker_set: WorkerSet, worker: WorkerProcess) -> None:
        """Kill a worker; what it had not begun goes back to the front of the queue."""
        self._queue.extendleft(reversed(worker.held))
        worker.held.clear()
        worker_set.kill(worker)

    def _shut_down(self, worker_set: WorkerSet, reason: str) -> None:
        with self._lock:
            self._is_closed = True
        for worker in worker_set.workers:
            self._give_up(worker.held.copy(), reason)
        self._give_up(self._queue, reason)
        self._give_up(self._inbox, reason)
        self._warming.extend(self._asked_to_warm)
        self._give_up_warming(reason)
        worker_set.shutdown()
        with self._lock:
            assert self._wake_pipe is not None
            for fd in self._wake_pipe:
                os.close(fd)
            # A later fork must not close these numbers again: they will be somebody else's.
            self._wake_pipe, self._worker_set = None, None
            self._counts["restarts"] = worker_set.restarts


_live: weakref.WeakSet[Dispatcher] = weakref.WeakSet()


def _stop_all() -> None:
    for dispatcher in list(_live):
        dispatcher.stop(drain=False)


def _after_fork_in_child() -> None:
    fork_lock.release()
    for dispatcher in list(_live):
        dispatcher.abandon()


atexit.register(_stop_all)
os.register_at_fork(before=fork_lock.acquire, after_in_parent=fork_lock.release, after_in_child=_after_fork_in_child)
