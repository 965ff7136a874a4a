"""Gives items to the workers of a pool, reads their answers, and decides when a worker is killed."""

from __future__ import annotations

import math
import selectors
import time
from collections.abc import Iterable
from concurrent.futures import Future

from grpo_sdk.errors import InfrastructureError
from grpo_sdk.killable import worker as program
from grpo_sdk.killable.items import ItemQueue
from grpo_sdk.killable.process import Answer, Item, WorkerProcess
from grpo_sdk.killable.worker_set import WorkerSet

AHEAD_S = 0.004
"""Work that a worker may hold ahead, so that it need not wait for this process's interpreter lock (5 ms when another
thread wants it too). Payloads that take longer go one by one to whoever is free."""

MAX_DEPTH = 16
"""Payloads that a worker may hold at most."""

_MEAN_DECAY = 0.9
"""Decay of the mean handler time per answer: the mean follows a change of load within some twenty answers."""

LIVENESS_TICK_S = 0.1
"""Interval at which busy workers are checked for having exited with their socket held open by a process they forked."""

REAP_TICK_S = 0.01
"""Interval at which killed processes are polled for their exit status."""


class Supervisor:
    """Gives items to workers, enforces deadlines and replaces dead workers; belongs to the pool's thread.

    Args:
        worker_set: Workers of the pool.
        size: Most workers that may be busy at once.
        queue: Items that wait for a worker.
    """

    def __init__(self, worker_set: WorkerSet, size: int, queue: ItemQueue) -> None:
        self._worker_set, self._size, self._queue = worker_set, size, queue
        self._warming: list[Future[None]] = []
        self._next_check = 0.0
        self._mean_s = AHEAD_S

    @property
    def is_idle(self) -> bool:
        """Whether no item waits and no worker has one."""
        return not (self._queue or any(worker.held for worker in self._worker_set.workers))

    def warm(self, future: Future[None]) -> None:
        """Start every worker; the future is done when all are ready."""
        self._warming.append(future)

    def dispatch(self) -> None:
        """Give items to workers, and start workers."""
        self._look_ahead()
        self._assign()
        self._staff()  # afterwards: to start a process takes a while

    def patience_s(self) -> float | None:
        """Seconds to sleep: None when nothing can happen but a submission or a worker's end."""
        if self._worker_set.has_dying:
            return REAP_TICK_S
        deadline, now = self._worker_set.next_deadline(), time.monotonic()
        soonest = deadline if deadline == math.inf else min(deadline, now + LIVENESS_TICK_S)
        if self._worker_set.spare_due > now:
            soonest = min(soonest, self._worker_set.spare_due)
        return None if soonest == math.inf else max(0.0, soonest - now)

    def give_up(self, items: Iterable[Item], futures: Iterable[Future[None]], reason: str) -> None:
        """Answer every item `unavailable` and fail every future, because the pool ends.

        Args:
            items: Items that have not been added yet.
            futures: Futures for `warm` that have not been passed to it yet.
            reason: Why the pool ends.
        """
        self._queue.put_back([item for worker in self._worker_set.workers for item in worker.held])
        self._queue.give_up(reason, items)
        self._warming.extend(futures)
        self._give_up_warming(reason)

    def _look_ahead(self) -> None:
        """Tell the worker set how many workers are needed."""
        if self._warming:
            self._worker_set.want(self._size)
        else:
            self._worker_set.want(len(self._queue) + sum(bool(worker.held) for worker in self._worker_set.workers))

    def _staff(self) -> None:
        """Start workers; where none can be started, fail the items and futures that wait for one."""
        self._worker_set.start()
        if self._worker_set.is_paused:
            if not self._worker_set.workers:
                self._queue.give_up(self._worker_set.trouble)
            if not self._worker_set.is_full:
                self._give_up_warming(self._worker_set.trouble)
        if self._warming and self._worker_set.is_full:
            while self._warming:
                self._warming.pop().set_result(None)

    def _give_up_warming(self, why: str) -> None:
        while self._warming:
            self._warming.pop().set_exception(InfrastructureError(why))

    def _assign(self) -> None:
        depth = min(MAX_DEPTH, max(1, int(AHEAD_S / max(self._mean_s, AHEAD_S / MAX_DEPTH))))
        while self._queue:
            may_begin = self._worker_set.may_begin
            worker = min(
                (
                    worker
                    for worker in self._worker_set.workers
                    if worker.is_ready and len(worker.held) < depth and (worker.held or may_begin)
                ),
                key=lambda worker: len(worker.held),
                default=None,
            )
            if worker is None:
                return
            if item := self._queue.take():
                worker.give(item)
                self._worker_set.listen(worker)

    def attend(self, worker: WorkerProcess, mask: int) -> None:
        """Write to a worker's socket and read from it, as the selector's `mask` says is possible."""
        if mask & selectors.EVENT_WRITE:
            worker.flush()
            self._worker_set.listen(worker)
        if mask & selectors.EVENT_READ:
            answers, is_open = worker.receive()
            for answer in answers:
                self._accept(worker, answer)
                if worker not in self._worker_set.workers:
                    return
            if not is_open:
                self._died(worker)

    def _accept(self, worker: WorkerProcess, answer: Answer) -> None:
        if answer.kind == program.READY:
            self._worker_set.is_ready(worker, int(answer.value))
            return
        if answer.kind == program.BROKEN:
            self._worker_set.kill(worker)
            self._worker_set.start_failed(answer.value.decode("utf-8", "replace"))
            return
        if not worker.held:  # something else wrote into the socket
            self._died(worker)
            return
        item = worker.held.popleft()
        worker.restart_clock()
        self._worker_set.proved_useful()
        self._took(answer.seconds)
        self._queue.answered(item, answer)
        if answer.kind & program.LEAVING:
            self._kill(worker)

    def check_workers(self) -> None:
        """Reap killed workers, and handle those that are overdue or have exited."""
        self._worker_set.reap()
        now = time.monotonic()
        check_liveness = now >= self._next_check
        if check_liveness:
            self._next_check = now + LIVENESS_TICK_S
        for worker in list(self._worker_set.workers):
            is_overdue = now >= worker.deadline
            if check_liveness and worker.held and now - worker.since >= LIVENESS_TICK_S:
                worker.look()
                self._worker_set.expect_death()
            has_exited = check_liveness and worker.deadline != math.inf and worker.has_exited()
            if not (is_overdue or has_exited):
                continue
            # Its answer may have come while this thread could not run: look before judging.
            self.attend(worker, selectors.EVENT_READ)
            if worker not in self._worker_set.workers:
                continue
            if has_exited:
                self._died(worker)
            elif now >= worker.deadline:
                self._overdue(worker, now)

    def _overdue(self, worker: WorkerProcess, now: float) -> None:
        seconds = now - worker.since
        if not worker.is_ready:
            self._worker_set.kill(worker)
            self._worker_set.start_failed(f"the target was not loaded after {seconds:.3g} s")
            return
        has_used_its_time = worker.extend_deadline(now)
        if now < worker.deadline:
            return
        item = worker.held.popleft()
        self._took(seconds)
        self._kill(worker)
        if has_used_its_time:
            self._queue.timed_out(item, seconds)
        else:
            why = f"the machine is too busy: after {seconds:.3g} s it had not had a processor for {item.timeout_s:g} s"
            self._queue.unavailable(item, why, seconds)

    def _took(self, seconds: float) -> None:
        self._mean_s = _MEAN_DECAY * self._mean_s + (1 - _MEAN_DECAY) * seconds

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
        if suspect is None:
            self._worker_set.start_failed(
                f"a worker {how} {'while idle' if worker.is_ready else 'while it loaded the target'}"
            )
        elif not suspect.has_killed:
            suspect.has_killed = True
            self._queue.put_back([suspect])
        else:
            self._queue.crashed(suspect, f"its worker {how}, twice", seconds)

    def _kill(self, worker: WorkerProcess) -> None:
        """Kill a worker; what it had not begun goes back to the front of the queue."""
        self._queue.put_back(worker.held)
        worker.held.clear()
        self._worker_set.kill(worker)
