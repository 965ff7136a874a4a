"""`--nproc N`: the same command in several processes of this machine, through torchrun's own launcher."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Sequence

import click

from grpo_core.errors import ExitCode, InfrastructureError, UserError
from grpo_core.profiles.accelerator import process_count

FIRST_RANK_S = 20.0
"""Time for the first rank to close what it holds and print, where nothing ends the others."""


def is_rank() -> bool:
    """Whether this process already is one of several ranks."""
    return "RANK" in os.environ and process_count() > 1


def is_silent_rank() -> bool:
    """Whether this process is a rank other than the first, which prints nothing."""
    return is_rank() and os.environ["RANK"] != "0"


def wait_for_first_rank() -> None:
    """Wait while the first rank prints the error of all: torchrun ends every process when one has ended."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    time.sleep(FIRST_RANK_S)


def process_number(nproc: str) -> int:
    """The number of processes.

    Raises:
        UserError: it is none.
    """
    if not nproc.isdigit() or not 1 <= int(nproc[:6]) <= 1024:
        raise UserError(f"--nproc {nproc[:40]!r} must be the number of processes on this machine, 1 or more.")
    return int(nproc)


def launch(nproc: str, arguments: Sequence[str]) -> int:
    """Run `grpo ARGUMENTS` in several processes, and end all of them when one fails.

    Args:
        nproc: Number of processes.
        arguments: Arguments of `grpo`, without `--nproc`.

    Returns:
        0, or the exit code of the first rank that failed.

    Raises:
        UserError: `nproc` is not a number of processes.
        InfrastructureError: a rank was killed, and so has not printed a reason.
    """
    count = process_number(nproc)
    import torch.distributed.launcher.api as launcher
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    config = launcher.LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=count,
        run_id=str(os.getpid()),
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
        monitor_interval=0.2,
    )
    _silence_launcher()
    try:
        launcher.elastic_launch(config, sys.executable)("-m", "grpo_core", *arguments)
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        if failure.exitcode < 0:
            how = signal.Signals(-failure.exitcode).name
            raise InfrastructureError(
                f"rank {rank} was killed by {how}, and the others were ended; the last checkpoint stands: grpo resume "
                "RUN (grpo runs lists them)."
            ) from None
        return failure.exitcode or ExitCode.FAILED  # the rank has printed the reason
    return ExitCode.DONE


def _silence_launcher() -> None:
    """Leave out what torchrun logs of ranks that fail, which have said why."""
    for name in list(logging.root.manager.loggerDict):
        if name.startswith("torch.distributed.elastic"):
            logging.getLogger(name).setLevel(logging.CRITICAL)


def words_of(context: click.Context) -> list[str]:
    """Return the arguments after a command's name on the command line, without `--nproc N`."""
    words = list(context.find_root().obj)
    if words and words[0] == context.command.name and context.parent is not None:
        words = words[1:]
    arguments, remaining = [], iter(words)
    for word in remaining:
        if word == "--nproc":
            next(remaining, None)
        elif not word.startswith("--nproc="):
            arguments.append(word)
    return arguments
