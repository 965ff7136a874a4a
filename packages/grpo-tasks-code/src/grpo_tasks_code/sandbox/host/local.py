"""`Sandbox`: runs programs on this machine."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Self, TypeVar

from grpo_sdk import inside_worker, refuse_at_import
from grpo_tasks_code.sandbox.arguments import (
    MAX_WORKERS,
    RUNS_OF_A_STARVED_PROGRAM,
    Limits,
    Script,
    check_whole,
    encoded,
)
from grpo_tasks_code.sandbox.errors import BusyError, ServerError
from grpo_tasks_code.sandbox.executor import Cancellation, Executor
from grpo_tasks_code.sandbox.host import levels, process
from grpo_tasks_code.sandbox.host.interpreter import Interpreter
from grpo_tasks_code.sandbox.host.job import Job
from grpo_tasks_code.sandbox.host.plan import Plan
from grpo_tasks_code.sandbox.host.pool import ServerPool
from grpo_tasks_code.sandbox.host.testing import MAX_ATTEMPTS, Examination
from grpo_tasks_code.sandbox.results import Execution, Level, TestResult

T = TypeVar("T")

MAX_DEFAULT_WORKERS = 16
"""With more, the servers cost more memory than parallel programs gain."""


class Sandbox(Executor):
    """Runs programs at one isolation level, several at a time, for any number of threads.

    The level is chosen, and servers are started, when they are first needed. Waiting for a free server does not count
    against a program's time. In a forked child the sandbox starts servers of its own.

    Args:
        level: `L3`, `L2` or `L1`; by default the strongest that withstands an attack here.
        workers: Number of programs at once; by default one per usable core, at most 16; one inside a scoring worker.
        allow_weak: Whether L1 may be used where nothing better works.

    Raises:
        UserError: an invalid number of workers.
    """

    def __init__(self, level: str | None = None, *, workers: int | None = None, allow_weak: bool = False) -> None:
        check_whole("workers", 1 if workers is None else workers, 1, MAX_WORKERS)
        self._forced, self._allow_weak = level, allow_weak
        self.workers = workers or _default_workers()
        self._lock = threading.RLock()
        self._level: Level | None = None
        self._pools: dict[str, ServerPool] = {}
        weakref.finalize(self, _close, self._pools)  # when it is forgotten, and at exit
        _sandboxes.add(self)

    @property
    def level(self) -> Level:
        """Isolation level, with its guarantee and the reason for choosing it.

        Raises:
            SandboxUnavailableError: no allowed level works here.
            UserError: the level does not exist, or a task file is being imported.
        """
        with self._lock:
            if self._level is None:
                refuse_at_import("the sandbox")
                self._level, server = levels.chosen(self._forced, allow_weak=self._allow_weak)
                self._pools["plain"] = ServerPool(server.level, self.workers)
                self._pools["plain"].add(server)
            return self._level

    def _run(self, script: Script, cancellation: Cancellation) -> Execution:
        pool = self._pool(script.policy or "plain", script.machine_state)
        program, given = encoded("code", script.code), encoded("stdin", script.stdin)

        def attempt() -> Execution:
            with pool.server() as server:
                job = Job(server, program, given, script.limits, is_restricted=script.policy is not None)
                with cancellation.ends(job.cancel):
                    execution = job.finish()
                job.check_server()
                return execution

        return _persist(attempt)

    def _run_tests(self, code: str, plan: Plan, limits: Limits) -> TestResult:
        servers, judges, program = self._pool("plain"), self._pool("judge"), encoded("code", code)
        return _persist(lambda: Examination(plan, servers, judges).run(program, limits))

    def interpreter(self, limits: Limits) -> Interpreter:
        """An interpreter, beside the programs that run at once; its process starts with its first call."""
        return Interpreter(self._pool("interpreter"), limits)

    def reserve(self, workers: int) -> None:
        """Allow at least this many servers."""
        with self._lock:
            self.workers = max(self.workers, workers)
            for pool in self._pools.values():
                pool.grow(self.workers)

    def _pool(self, kind: str, machine_state: int = 0) -> ServerPool:
        """Return the servers for `plain` programs, for programs under a policy, for judges, or for interpreters."""
        refuse_at_import("the sandbox")  # also where its servers are running already
        name = f"{kind} {machine_state}" if machine_state else kind
        with self._lock:
            self.level  # noqa: B018  # makes the first pool
            if name not in self._pools:
                self._pools[name] = ServerPool(
                    self._pools["plain"].level,
                    MAX_WORKERS if kind == "interpreter" else self.workers,
                    is_restricted=kind == "restricted",
                    hash_seed=machine_state,
                )
            return self._pools[name]

    def close(self) -> None:
        """End all servers and running programs; the next program starts new servers."""
        with self._lock:
            self._level = None
            _close(self._pools)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def abandon(self) -> None:
        """Forget the servers in a forked child: they are the parent's, and its locks may be held."""
        self._lock, self._level = threading.RLock(), None
        for pool in self._pools.values():
            pool.abandon()
        self._pools.clear()


_sandboxes: weakref.WeakSet[Sandbox] = weakref.WeakSet()
"""Sandboxes of this process, which forked children forget."""


def _close(pools: dict[str, ServerPool]) -> None:
    while pools:
        pools.popitem()[1].close()


def _forget_all() -> None:
    process.forget_starter()
    for sandbox in list(_sandboxes):
        sandbox.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


def _persist(attempt: Callable[[], T]) -> T:
    """Retry while servers end before the program starts, or the machine is too busy for it.

    Raises:
        ServerError: the last attempt failed.
    """
    for number in range(1, MAX_ATTEMPTS):
        try:
            return attempt()
        except BusyError:
            if number >= RUNS_OF_A_STARVED_PROGRAM:
                raise
        except ServerError:
            continue
    return attempt()


def _default_workers() -> int:
    if inside_worker():
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, MAX_DEFAULT_WORKERS)
