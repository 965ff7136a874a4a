"""Runs symbolic checks in one process-wide pool of killable workers, or in process inside such a worker.

Inside a worker a pool would let queueing count against the worker's deadline; the worker has a memory limit anyway.
"""

from __future__ import annotations

import os
import threading
from fractions import Fraction

from grpo_sdk import InfrastructureError, KillablePool, inside_worker
from grpo_tasks_math.verify import symbolic

MAX_WORKERS = 4
"""Few answers need the engine, and each worker holds SymPy, about 150 MiB."""
MEMORY_MIB = 2048
"""Address space of a worker: ten times the need of ordinary answers, and four workers fit into a laptop's memory."""

_lock = threading.Lock()
_pool: KillablePool | None = None


class BudgetError(Exception):
    """The check exceeded its time or memory, or killed its worker."""


def check(gold: str, answer: str, timeout_s: float, rel_tol: Fraction = Fraction(0)) -> bytes:
    """Run one symbolic check and return its reply.

    Raises:
        BudgetError: no reply within `timeout_s` seconds of work (queueing is not counted) or the memory limit.
        InfrastructureError: no worker could be started, so the answer has no verdict.
    """
    payload = symbolic.encode(gold, answer, rel_tol)
    if inside_worker():
        try:
            return symbolic.handle(payload)
        except MemoryError as error:
            raise BudgetError from error
    outcome = _shared_pool().submit(payload, timeout_s).result()
    if outcome.status == "ok":
        return outcome.value
    if outcome.status == "unavailable":
        raise InfrastructureError(f"the answer could not be verified: no worker for math-verify ({outcome.why}).")
    raise BudgetError(outcome.why)


def warm() -> None:
    """Start the workers, or load SymPy when inside one, so that the first symbolic check does not wait for it."""
    if inside_worker():
        symbolic.factory()
    else:
        _shared_pool().warm()


def close() -> None:
    """Stop the workers; the next check starts new ones."""
    global _pool
    with _lock:
        pool, _pool = _pool, None
    if pool is not None:
        pool.close()


def _shared_pool() -> KillablePool:
    global _pool
    with _lock:
        if _pool is None:
            _pool = KillablePool(
                f"{symbolic.__name__}:{symbolic.factory.__name__}",
                workers=min(MAX_WORKERS, os.cpu_count() or 1),
                memory_mib=MEMORY_MIB,
                name="verify",
                preload="math_verify",
            )
        return _pool


def _forget() -> None:
    """Give a forked child its own lock and pool: the parent's may be held, and its workers are not the child's."""
    global _lock, _pool
    _lock, _pool = threading.Lock(), None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
