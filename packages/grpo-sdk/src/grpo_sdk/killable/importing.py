"""No work is started while a task file is imported: every worker imports the file too, and would start it again."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from grpo_sdk.errors import UserError
from grpo_sdk.killable.worker import IN_WORKER_VARIABLE

_importing: dict[int, Path] = {}
"""Thread -> the file that it imports."""


@contextmanager
def importing(path: Path) -> Iterator[None]:
    """Mark a task file as being imported by this thread."""
    thread = threading.get_ident()
    outer = _importing.get(thread)
    _importing[thread] = path
    try:
        yield
    finally:
        if outer is None:
            del _importing[thread]
        else:
            _importing[thread] = outer


def inside_worker() -> bool:
    """Whether this process is a worker of a `KillablePool`, or was started by one.

    It has a deadline already. With workers of its own, waiting for them would count against that deadline.
    """
    return bool(os.environ.get(IN_WORKER_VARIABLE))


def refuse_at_import(what: str) -> None:
    """Refuse what starts processes while a task file is imported, in a worker also by another thread.

    Args:
        what: Subject of the error, e.g. "train()".

    Raises:
        UserError: a task file is being imported.
    """
    path = _importing.get(threading.get_ident())
    if path is None and inside_worker():
        path = next(iter(_importing.values()), None)
    if path is not None:
        raise UserError(
            f"{what} runs while the task file {path.name} is imported, as every process that scores does too; put it "
            "under 'if __name__ == \"__main__\":'."
        )


def refuse_in_worker(what: str) -> None:
    """Like `refuse_at_import`, for what no worker has a use for at any time.

    Raises:
        UserError: a task file is being imported, or this is a worker.
    """
    refuse_at_import(what)
    if inside_worker():
        raise UserError(
            f"{what} cannot run inside a process that scores completions (BoundTask.score can); call it from your own "
            "process."
        )
