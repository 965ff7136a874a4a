"""Asynchronous work behind a plain iterator."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

_DONE = object()


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
