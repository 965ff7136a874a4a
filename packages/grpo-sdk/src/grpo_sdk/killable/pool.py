from __future__ import annotations

import json
import math
import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from dataclasses import asdict
from functools import partial
from typing import Protocol, Self, TypeVar

from grpo_sdk.errors import UserError
from grpo_sdk.killable import worker as program
from grpo_sdk.killable.dispatcher import Dispatcher
from grpo_sdk.killable.executor import MakeExecutor
from grpo_sdk.killable.items import Item
from grpo_sdk.killable.outcome import Outcome, PoolStats
from grpo_sdk.killable.process import JSON, Launch
from grpo_sdk.killable.supervisor import Supervisor
from grpo_sdk.killable.worker import MAX_FRAME_BYTES

T = TypeVar("T")

MAX_DEFAULT_WORKERS = 16
"""Beyond this, the memory of workers costs more than checking answers in parallel gains."""


def default_workers() -> int:
    """Cores this process may use, at most `MAX_DEFAULT_WORKERS`."""
    return min(usable_cores(), MAX_DEFAULT_WORKERS)


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class KillablePool:
    """Runs `handle(payload)` in worker processes that are killed when they take too long.

    In each worker, `factory(*args)` is called once and returns `handle: bytes -> bytes`. Workers are started by exec
    when they are first needed, or forked from a process that was (`preload`), in a session of their own, and die with
    this process. The pool works from any thread, from asyncio and in forked children, where it starts its own workers.

    The time of a payload runs while a worker works on it, never while it waits or while a worker starts. On Linux, what
    the worker then waits for a processor does not count either, up to three times the limit and 10 s in all: after that
    the payload is `unavailable`, since nothing is known of it. When its time is over the worker is killed, with every
    process that a handler started in it, also in a session of its own; on macOS, only those in its process group. A
    payload that timed out or crashed is remembered, and the same bytes get the same outcome at once. What a handler
    prints goes to this process's stderr, up to 4 KiB per payload.

    Once a payload has taken 0.1 s or ended its worker, one worker more than may be busy waits as a spare with the
    target loaded, so that the next payload need not wait for the successor of a killed one. It costs the memory of one
    worker that has only loaded the target (`math.arithmetic`: 22 MiB, and 5 MiB for its keeper).

    Args:
        target: "module:factory", importable here.
        args: The factory's arguments.
        workers: Processes; by default one per usable core, at most 16.
        memory_mib: Address space a worker may take beyond what the loaded target has (Linux); None is no limit.
        name: Shown in lists of threads, of processes that are not forked, and in errors.
        start_timeout_s: Limit of loading the target.
        has_spare: Whether there may be such a spare.
        environment: Environment variables set for the workers beside those of this process, e.g. PYTHONHASHSEED.
        preload: Module that is imported once, in a process from which the workers are forked (Linux): they start sooner
            and share its memory. It must start no thread and draw no random number while it is imported.

    Raises:
        UserError: an argument that cannot be meant, or this package is in a zip file, from which no process starts.
    """

    def __init__(
        self,
        target: str,
        *,
        args: tuple[JSON, ...] = (),
        workers: int | None = None,
        memory_mib: int | None = 4096,
        name: str = "worker",
        start_timeout_s: float = 120.0,
        has_spare: bool = True,
        environment: Mapping[str, str] | None = None,
        preload: str | None = None,
    ) -> None:
        module, _, factory = target.partition(":")
        if not module or not factory.isidentifier() or module == "__main__":
            raise UserError(f"target {target!r}: write module:factory, with a module that another process can import.")
        if workers is not None and workers < 1:
            raise UserError(f"workers={workers} must be at least 1.")
        if memory_mib is not None and memory_mib < 1:
            raise UserError(f"memory_mib={memory_mib} must be at least 1, or None for no limit.")
        try:
            json.dumps(args)
        except (TypeError, ValueError) as error:
            raise UserError(f"args={args!r:.200} of {target!r} must be plain JSON values: {error}.") from None
        if not 0 < start_timeout_s < math.inf:
            raise UserError(f"start_timeout_s={start_timeout_s!r} must be a number of seconds above 0.")
        if not os.path.isfile(program.__file__):
            raise UserError(f"no file {program.__file__}, which worker processes run: install this package unpacked.")
        try:
            cwd: str | None = os.getcwd()
        except FileNotFoundError:  # it was deleted: the workers live without one too
            cwd = None
        self.workers = workers or default_workers()
        self.target, self.name = target, name
        launch = Launch(target, args, memory_mib, name, cwd, has_spare, environment or {}, preload, start_timeout_s)
        options = {name: value for name, value in asdict(launch).items() if name != "cwd"}
        self._remake: Callable[[], KillablePool] = partial(KillablePool, workers=workers, **options)
        self._dispatcher = Dispatcher(name, self._executor(launch, workers))
        # The thread holds the dispatcher, not the pool, so that a forgotten pool is collected and ends it.
        self._finalizer = weakref.finalize(self, self._dispatcher.stop, drain=True)
        self._finalizer.atexit = False  # at exit every dispatcher is stopped without draining

    def _executor(self, launch: Launch, workers: int | None) -> MakeExecutor:
        """What makes the processes; it must not hold the pool."""
        return partial(Supervisor, launch, workers or default_workers())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.target!r}, workers={self.workers}, name={self.name!r})"

    def __reduce__(self) -> tuple[Callable[..., KillablePool], tuple[object, ...]]:
        return self._remake, ()

    def submit(self, payload: bytes, timeout_s: float) -> Future[Outcome]:
        """Queue one payload. A future that is cancelled before a worker takes it is not run.

        Args:
            payload: At most 64 MiB.
            timeout_s: How long the handler may run.

        Raises:
            UserError: a time that is not above 0, or a payload that is no bytes or too long.
            InfrastructureError: the pool is closed.
        """
        return self.submit_as(payload, timeout_s, _unchanged)

    def submit_as(
        self,
        payload: bytes,
        timeout_s: float,
        convert: Callable[[Outcome], T],
        *,
        fallback: Callable[[], bytes] | None = None,
        is_repeatable: bool = True,
    ) -> Future[T]:
        """Like `submit`, for a future of `convert(outcome)`.

        `convert`, like callbacks of the future, runs in the pool's only thread: it must be quick and must not wait.
        With a `fallback`, a payload that times out is followed by the one that it makes, and the outcome `timeout` has
        the value of that. Without `is_repeatable`, a payload that ends its worker is `crashed` at once.
        """
        if not isinstance(payload, bytes):
            raise UserError(f"a payload is bytes, not a {type(payload).__name__}.")
        if len(payload) > MAX_FRAME_BYTES:
            raise UserError(f"a payload of {len(payload)} bytes is longer than {MAX_FRAME_BYTES}.")
        if not 0 < timeout_s < math.inf:
            raise UserError(f"timeout_s={timeout_s!r} must be a number of seconds above 0.")
        future: Future[T] = Future()
        item = Item(payload, timeout_s, future, convert, fallback, is_repeatable=is_repeatable)
        self._dispatcher.put(item)
        return future

    def map(self, payloads: Sequence[bytes], timeout_s: float) -> list[Outcome]:
        """Run each payload and wait; outcomes are in the order of the payloads. Errors are those of `submit`."""
        return wait_all([self.submit(payload, timeout_s) for payload in payloads])

    async def amap(self, payloads: Sequence[bytes], timeout_s: float) -> list[Outcome]:
        """Like `map`, without blocking the event loop."""
        return await gather_all([self.submit(payload, timeout_s) for payload in payloads])

    def warm(self) -> None:
        """Start every worker and wait until all have loaded the target.

        Raises:
            InfrastructureError: one cannot; says why.
        """
        self._dispatcher.warm().result()

    @property
    def stats(self) -> PoolStats:
        """Counts of this process's workers so far."""
        return self._dispatcher.stats

    def close(self) -> None:
        """Kill the workers. What is queued or running gets the outcome `unavailable`."""
        self._dispatcher.stop(drain=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def resolved(result: T) -> Future[T]:
    """A future that is done already."""
    future: Future[T] = Future()
    future.set_result(result)
    return future


class WaitAll(Protocol):
    """Waits for results, as `wait_all` does."""

    def __call__(self, futures: Sequence[Future[T]], /) -> list[T]:
        """Results in order."""
        ...


def wait_all(futures: Sequence[Future[T]]) -> list[T]:
    """Results in order; an error of one, or an interruption, cancels what has not begun."""
    try:
        done, _ = wait(futures, return_when=FIRST_EXCEPTION)  # which wakes this thread once, not for each
        return [future.result() for future in futures if future in done]
    except BaseException:
        for future in reversed(futures):  # first those that have begun would let others begin
            future.cancel()
        raise


async def gather_all(futures: Sequence[Future[T]]) -> list[T]:
    """Like `wait_all`, without blocking the event loop."""
    import asyncio  # 30 ms that most processes never need

    return await asyncio.gather(*map(asyncio.wrap_future, futures))


def _unchanged(outcome: Outcome) -> Outcome:
    return outcome
