"""Processes that write checkpoints and are killed. One parent has paid for the imports and forks them:

`python checkpoint_writers.py` reads lines `RUN N SWAP` from stdin and answers each with one line: "killed" if `change`
was killed before its Nth system call, "done" if it makes fewer. SWAP is 1 if the file system can swap two names, 0 if
it is to look as if it could not.
"""

import itertools
import os
import signal
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from grpo_core.checkpoints import CheckpointStore, Step
from grpo_sdk import files

NEED_SPACE = ("fsync", "mkdir", "rename", "replace", "symlink")
"""Of `os`: what a full disk refuses."""

CALLS = (*NEED_SPACE, "rmdir", "unlink")
"""Of `os`: what changes the names on a disk, or waits for it."""


def save(store: CheckpointStore, *steps: Step, content: str = "") -> None:
    """Write checkpoints, each of other bytes unless a content is given."""
    for step in steps:
        with store.writing(step) as folder:
            (folder / "model").mkdir()
            (folder / "model" / "weights").write_text((content or str(step)) * 100)
            (folder / "state.json").write_text(content or str(step))


def change(run: Path) -> None:
    """Replace step 2, add step 3, delete all but the newest: each thing that a store does to the disk."""
    store = CheckpointStore(run)
    save(store, 2, 3, content="new")
    store.prune(keep_last=1)


def before_call(
    number: int,
    action: Callable[[], None],
    patch: Callable[[Any, str, Any], None],
    swap: bool,
    names: Iterable[str] = CALLS,
) -> None:
    """Run `action` before the `number`th of the calls that change the disk.

    Args:
        number: From 1.
        action: May end the process, or raise.
        patch: As `setattr`.
        swap: False makes the file system one that cannot swap two names.
        names: The calls that count, beside the swap.
    """
    calls = itertools.count(1)

    def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if next(calls) == number:
                action()
            return function(*args, **kwargs)

        return call

    patch(os, "fsync", lambda descriptor: None)  # neither a kill nor an error loses what the kernel has
    for name in names:
        patch(os, name, wrapped(getattr(os, name)))
    patch(files, "exchange", wrapped(files.exchange) if swap else lambda one, other: False)


def forked(body: Callable[[], None]) -> int:
    if pid := os.fork():
        return pid
    try:
        body()
        os._exit(0)
    finally:
        os._exit(1)


def faulty_change(run: Path, number: int, swap: bool) -> None:
    before_call(number, lambda: os.kill(os.getpid(), signal.SIGKILL), setattr, swap)
    change(run)


def main() -> None:
    for line in sys.stdin:
        run, number, swap = line.split()
        pid = forked(partial(faulty_change, Path(run), int(number), bool(int(swap))))
        _, status = os.waitpid(pid, 0)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        print("killed" if killed else "done" if status == 0 else f"failed: {status}", flush=True)


if __name__ == "__main__":
    main()
