"""Asynchronous work behind a plain iterator, and in an event loop that the whole process shares."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

STOP_S = 2.0
"""Time that requests have at exit to be taken back."""

_DONE = object()


async def gather_or_cancel(coroutines: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run coroutines together; where one fails or this is cancelled, the others are cancelled and waited for."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def stream_from_thread(work: Callable[[Callable[[T], None]], Coroutine[Any, Any, None]]) -> Iterator[T]:
    """Yield what a coroutine puts; it runs in a thread with an event loop of its own, so callers may have one, too.

    An error of the coroutine is raised here; ending the iteration early cancels it and waits until it has cleaned up.

    Args:
        work: Takes the function that puts an item.
    """
    items: SimpleQueue[Any] = SimpleQueue()
    loop = asyncio.new_event_loop()
    task = loop.create_task(work(items.put))

    def run() -> None:
        try:
            loop.run_until_complete(task)
        except asyncio.CancelledError:
            pass
        except BaseException as error:  # whatever ended the work is raised again where its results are read
            items.put(error)
        finally:
            items.put(_DONE)
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    thread = threading.Thread(target=run, name="background", daemon=True)
    thread.start()
    try:
        while (item := items.get()) is not _DONE:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the work has ended by itself
            loop.call_soon_threadsafe(task.cancel)
        thread.join()


class BackgroundLoop:
    """An event loop in a daemon thread, which starts with the first coroutine and ends with the process.

    A forked child has a thread of its own.

    Args:
        name: Name of the thread.
        on_stop: Called in the thread at exit, after its coroutines were cancelled.
    """

    def __init__(self, name: str, on_stop: Callable[[], None] = lambda: None) -> None:
        self._name, self._on_stop = name, on_stop
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        atexit.register(self._stop)
        os.register_at_fork(after_in_child=self._forget)

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine in the thread; cancelling the future cancels it."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._run, args=(self._loop,), name=self._name, daemon=True)
                self._thread.start()
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _forget(self) -> None:
        self._lock, self._loop, self._thread = threading.Lock(), None, None

    @staticmethod
    def _run(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        loop.run_forever()

    def _stop(self) -> None:
        if self._loop is None or self._thread is None:
            return
        self.submit(self._cancel_all()).result(timeout=STOP_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=STOP_S)

    async def _cancel_all(self) -> None:
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._on_stop()
