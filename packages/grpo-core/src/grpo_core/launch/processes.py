"""The command line that starts a run on one of its machines, and the end of what it starts."""

from __future__ import annotations

import ctypes
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from grpo_core.checkpoints import CheckpointError, CheckpointStore

_PR_SET_PDEATHSIG = 1
"""`<linux/prctl.h>`: a signal for this process when its parent dies."""


def ending_with_parent() -> Callable[[], None] | None:
    """Return what a child calls, also between fork and exec, to get SIGTERM when its parent dies; None but on Linux."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl  # looked up here, since little may be done between fork and exec
    return lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine of a run.

    Attributes:
        number: Its number; the first one hosts the rendezvous.
        count: Machines of the run.
        first: Address of the first one.
        port: Port of the rendezvous.
        job: Identifier that the machines of one start have in common.
    """

    number: int = 0
    count: int = 1
    first: str = "localhost"
    port: int = 29500
    job: str = "grpo"

    @property
    def options(self) -> list[str]:
        """Options of `grpo` that name it; none of a single machine."""
        if self.count == 1:
            return []
        machine = ["--nnodes", str(self.count), "--node-rank", str(self.number)]
        return [*machine, "--rdzv-endpoint", f"{self.first}:{self.port}"]


def latest_checkpoint(run: Path) -> Path | None:
    """Return the checkpoint that a run goes on from, if it has one."""
    with suppress(CheckpointError):
        return CheckpointStore(run).path("latest")
    return None


def several(processes: int) -> list[str]:
    """Options of `grpo` that start so many processes of a machine."""
    return [] if processes == 1 else ["--nproc", str(processes)]


def run_command(words: Sequence[str], processes: int, machine: Machine, *, python: str = sys.executable) -> list[str]:
    """Return the command line of `grpo WORDS` in some processes of a machine.

    Args:
        words: Words after `grpo`, without `--nproc`.
        processes: Processes of this machine.
        machine: Which of the run's machines it is.
        python: Interpreter that has grpo-core.
    """
    if machine.count == 1:
        return [python, "-m", "grpo_core", *words, *several(processes)]
    return [
        python,
        "-m",
        "torch.distributed.run",
        f"--nnodes={machine.count}",
        f"--nproc-per-node={processes}",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint={machine.first}:{machine.port}",
        f"--rdzv-id={machine.job}",
        # Said, not found out: a name of the first machine may not be one that it knows of itself.
        f"--rdzv-conf=is_host={int(machine.number == 0)}",
        "-m",
        "grpo_core",
        *words,
    ]
