"""What the processes of a run tell the program that has started them: their folder, and whether a signal saves it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from grpo_sdk.files import replace_file

FOLDER_FILE = "_GRPO_FOLDER_FILE"
"""Environment variable with the file that the launcher of several processes reads the run's folder from."""

LOST_CONTACT = 75
"""Exit code of a process that has only lost the others, for its launcher, which says so once; EX_TEMPFAIL."""


FIRST_RANK_S = 20.0
"""Time for the first rank to close what it holds and print, where nothing ends the others."""


def announce_folder(run_dir: Path) -> None:
    """Tell the launcher of this process, if there is one, the run's folder; one process of a machine does."""
    if FOLDER_FILE in os.environ:
        replace_file(Path(os.environ[FOLDER_FILE]), os.fsencode(run_dir.absolute()))


@contextmanager
def announced_saving(is_requested: Callable[[], bool]) -> Iterator[None]:
    """Tell the launcher of this process, if there is one, that a signal within the block has the run saved.

    Args:
        is_requested: Whether there was one, so that the launcher still finds it after the block.
    """
    if FOLDER_FILE not in os.environ:
        yield
        return
    mark = saving_mark(Path(os.environ[FOLDER_FILE]))
    mark.touch()
    try:
        yield
    finally:
        if not is_requested():
            mark.unlink(missing_ok=True)


def is_first_to_report(kind: str) -> bool:
    """Whether no other process of the same launcher has reported an error of this kind; always without one of ours."""
    if FOLDER_FILE not in os.environ:
        return True
    try:
        Path(os.environ[FOLDER_FILE]).with_suffix(f".{kind}").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def saving_mark(folder_file: Path) -> Path:
    """The file that is there while a signal has the run saved."""
    return folder_file.with_suffix(".saves")


def is_first_to_say() -> bool:
    """Whether this process is the one of its machine that reports what all of them notice; no launcher of ours does."""
    return FOLDER_FILE not in os.environ and os.environ.get("LOCAL_RANK", "0") == "0"


def is_rank() -> bool:
    """Whether this process already is one of several ranks."""
    return "RANK" in os.environ and os.environ.get("WORLD_SIZE", "1") != "1"


def is_silent_rank() -> bool:
    """Whether this process is a rank other than the first, which prints nothing."""
    return is_rank() and os.environ["RANK"] != "0"


def wait_for_first_rank() -> None:
    """Wait while the first rank prints the error of all: torchrun ends every process when one has ended."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    time.sleep(FIRST_RANK_S)
