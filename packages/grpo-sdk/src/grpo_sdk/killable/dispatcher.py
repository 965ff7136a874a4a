from __future__ import annotations

import atexit
import contextlib
import os
import selectors
import threading
import weakref
from collections import deque
from concurrent.futures import Future
from dataclasses import fields

from grpo_sdk.errors import InfrastructureError
from grpo_sdk.killable import fork_server
from grpo_sdk.killable import worker as program
from grpo_sdk.killable.executor import Executor, MakeExecutor
from grpo_sdk.killable.importing import refuse_at_import
from grpo_sdk.killable.items import Item, ItemQueue, Quarantine
from grpo_sdk.killable.outcome import PoolStats
from grpo_sdk.killable.supervisor import fork_lock


class Dispatcher:
    """The thread of a pool: takes items from other threads, and runs an `Executor` for them.

    Everything but the inbox belongs to the thread, so nothing else is locked. The thread lives as long as its workers:
    Linux sends the parent-death signal when the thread that started a process ends.

    Args:
        name: Name of the pool.
        make_executor: Makes the pool's processes; again after a fork.
    """

    def __init__(self, name: str, make_executor: MakeExecutor) -> None:
        self._name, self._make_executor = name, make_executor
        self._quarantine = Quarantine()
        self._is_closed = False
        self._reset()
        _live.add(self)

    def _reset(self) -> None:
        """Set the state of a pool without thread and workers."""
        self._lock = threading.RLock()  # re-entrant: a collection inside it may run a finalizer that wants it
        self._thread: threading.Thread | None = None
        self._wake_pipe: tuple[int, int] | None = None
        self._is_asleep = False
        self._is_draining = False
        self._inbox: deque[Item] = deque()
        self._warm_requests: deque[Future[None]] = deque()
        self._executor: Executor | None = None
        self._counts = {field.name: 0 for field in fields(PoolStats)}

    # Called by other threads

    @property
    def stats(self) -> PoolStats:
        """Counts so far."""
        executor = self._executor
        if executor is not None:
            self._counts["restarts"] = executor.restarts
        return PoolStats(**self._counts)

    @property
    def executor(self) -> Executor | None:
        """The processes; None before the first are needed."""
        return self._executor

    def put(self, item: Item) -> None:
        """Queue an item.

        Raises:
            InfrastructureError: the pool is closed.
            UserError: a task file is being imported.
        """
        with self._lock:
            if self._is_closed or self._thread is None:
                self._begin()
            self._inbox.append(item)
            if self._is_asleep:
                self._wake()

    def warm(self) -> Future[None]:
        """Start every worker; the future is done when all are ready.

        Raises:
            InfrastructureError: the pool is closed.
        """
        future: Future[None] = Future()
        with self._lock:
            self._begin()
            self._warm_requests.append(future)
            self._wake()
        return future

    def stop(self, *, drain: bool) -> None:
        """End the thread and its workers.

        Args:
            drain: Whether queued items are finished first, without waiting here: for a pool without references, whose
                last futures still get their outcomes.
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
        if self._executor is not None:
            self._executor.abandon()
        for fd in self._wake_pipe or ():
            os.close(fd)
        self._reset()

    def _begin(self) -> None:
        """Start the thread, if there is none."""
        if self._is_closed:
            raise InfrastructureError(f"the pool of {self._name!r} workers is closed; make a new one.")
        if self._thread is not None:
            return
        refuse_at_import(f"the pool of {self._name!r} workers")
        self._wake_pipe = os.pipe()
        for fd in self._wake_pipe:
            os.set_blocking(fd, False)
        queue = ItemQueue(self._quarantine, self._counts)
        self._executor = executor = self._make_executor(queue)
        executor.selector.register(self._wake_pipe[0], selectors.EVENT_READ)
        # Daemonic: the interpreter joins other threads before it runs the exit handler that stops this one.
        thread = threading.Thread(target=self._run, args=(executor, queue), name=f"killable-{self._name}", daemon=True)
        thread.start()
        self._thread = thread

    def _wake(self) -> None:
        """Have the thread look, if it sleeps."""
        if self._is_asleep and self._wake_pipe is not None:
            self._is_asleep = False
            with contextlib.suppress(BlockingIOError):  # full: it will wake
                os.write(self._wake_pipe[1], b"\0")

    # The thread

    def _run(self, executor: Executor, queue: ItemQueue) -> None:
        reason = "the pool was closed"
        try:
            while not self._is_done(executor):
                while self._inbox:
                    queue.add(self._inbox.popleft())
                while self._warm_requests:
                    executor.warming.append(self._warm_requests.popleft())
                executor.dispatch()
                # Set before the inbox is looked at again: who fills it afterwards wakes this thread.
                self._is_asleep = True
                is_awaited = self._inbox or self._warm_requests or self._is_done(executor)
                events = executor.selector.select(0.0 if is_awaited else executor.patience_s())
                self._is_asleep = False
                for key, mask in events:
                    if key.data is None:
                        os.read(key.fd, 4096)
                    else:
                        executor.attend(key.data, mask)
                executor.check_workers()
        except BaseException as error:
            reason = f"the pool failed: {program.describe(error)}"
            raise
        finally:
            self._shut_down(executor, queue, reason)

    def _is_done(self, executor: Executor) -> bool:
        if not self._is_draining:
            return self._is_closed
        return executor.is_idle and not (self._inbox or self._warm_requests)

    def _shut_down(self, executor: Executor, queue: ItemQueue, reason: str) -> None:
        with self._lock:
            self._is_closed = True
        while self._inbox:
            queue.add(self._inbox.popleft())
        queue.give_up_all(reason)
        executor.warming.extend(self._warm_requests)
        executor.end_warming(reason)
        executor.shutdown()
        with self._lock:
            assert self._wake_pipe is not None
            for fd in self._wake_pipe:
                os.close(fd)
            # A later fork must not close these numbers again: they will be somebody else's.
            self._wake_pipe, self._executor = None, None
            self._counts["restarts"] = executor.restarts


_live: weakref.WeakSet[Dispatcher] = weakref.WeakSet()


def _stop_all() -> None:
    for dispatcher in list(_live):
        dispatcher.stop(drain=False)
    fork_server.close_all()


def _after_fork_in_child() -> None:
    fork_lock.release()
    for dispatcher in list(_live):
        dispatcher.abandon()
    fork_server.abandon_all()


atexit.register(_stop_all)
os.register_at_fork(before=fork_lock.acquire, after_in_parent=fork_lock.release, after_in_child=_after_fork_in_child)
