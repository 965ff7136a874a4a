"""A run inside a SLURM job: saved when the job is about to end, requeued, and resumed."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import psutil

from grpo_core.launch.processes import Machine, latest_checkpoint, run_command
from grpo_core.tracking.runs import find_runs, has_ended

if TYPE_CHECKING:
    from submitit.core.utils import DelayedSubmission
    from submitit.slurm.slurm import SlurmJobEnvironment

FIRST_PORT, PORTS = 20_000, 10_000
"""Ports of rendezvous, one for each job; below those that the system gives out itself."""

POLL_S = 0.2
"""Time between two looks at the run; torchrun looks as often."""

REPEAT_S = 5.0
"""Time after which ranks are told again to stop: until torch is imported, they ignore it as torchrun does."""

ONLY_CTRL_C = dict.fromkeys(("TORCHELASTIC_SIGNALS_TO_HANDLE", "PET_SIGNALS_TO_HANDLE"), "SIGINT")
"""Variables with which torchrun handles SIGINT alone; newer versions set the first one from the second."""

IDLE_STARTS = 3
"""Starts in a row that may end without one more step; then the job is not requeued again."""


class SlurmRun:
    """The function that submitit calls on each node: starts the run, or resumes what an earlier start has saved.

    submitit sends its signal before the time limit, and a cluster may send SIGTERM before it takes the nodes away.
    Either stops the run, which saves itself; the first node then requeues the job, unless it is being cancelled.

    Args:
        words: Words after `grpo` of the first start: `run` and its options.
        processes: Processes of each node.
        folder: Folder that holds the run; by default that of the job.
    """

    def __init__(self, words: Sequence[str], processes: int, folder: Path | None = None) -> None:
        self.words, self.processes, self.folder = list(words), processes, folder
        self.saved: list[str] = []

    def __call__(self) -> None:
        """Run to the end, or until the job is requeued, which ends this process.

        Raises:
            SystemExit: the run failed or was cancelled; with its exit code.
        """
        from submitit.slurm.slurm import SlurmJobEnvironment

        job = SlurmJobEnvironment()
        words = next_words(self.folder or job.paths.folder, self.words)
        if not words:
            _say("the run has ended: nothing is left to do")
            return
        _say(f"grpo {shlex.join(words)}")
        has_ranks = self.processes * job.num_nodes > 1
        code, received = _supervise(run_command(words, self.processes, _machine(job)), has_ranks=has_ranks)
        if code == 0:
            return
        if received and job.global_rank > 0:
            return  # the first node requeues, which ends this one
        if received and _state(job) == "RUNNING":
            _requeue()
        sys.exit(code if code > 0 else 128 - code)

    def checkpoint(self) -> DelayedSubmission | None:
        """Return what submitit calls after the job was requeued, or None to let the job end."""
        from submitit.core.utils import DelayedSubmission
        from submitit.slurm.slurm import SlurmJobEnvironment

        saved = newest_saved(self.folder or SlurmJobEnvironment().paths.folder)
        self.saved.append("nothing" if saved is None else saved.name)
        last = self.saved[-IDLE_STARTS:]
        if len(last) == IDLE_STARTS and len(set(last)) == 1:
            _say(f"not requeued: {IDLE_STARTS} starts in a row ended with {last[0]} saved. Give the job more --time")
            return None
        return DelayedSubmission(self)


def newest_saved(folder: Path) -> Path | None:
    """Return the last checkpoint of the newest run in a job's folder that has one."""
    runs = reversed(find_runs(folder) if folder.is_dir() else [])
    return next(filter(None, map(latest_checkpoint, runs)), None)


def next_words(folder: Path, words: Sequence[str]) -> list[str]:
    """Return the words after `grpo` of a job's next start; none if its run has ended.

    Args:
        folder: Folder that holds the job's run.
        words: Those of its first start.
    """
    saved = newest_saved(folder)
    if saved is None:
        return [*words, "--output-dir", str(folder)]
    run = saved.parent.parent
    # The next node may differ from the last one; the run then reports that its numbers may differ in their last bits.
    return [] if has_ended(run, 0) else ["resume", str(run), "--allow", "hardware"]


def _supervise(command: Sequence[str], *, has_ranks: bool) -> tuple[int, bool]:
    """Run a command to its end, and have it stop and save when this process receives a signal.

    SLURM signals every process of a job. submitit's signal would end the run, which therefore ignores it and is sent
    SIGTERM. A SIGTERM of SLURM reaches the run by itself; torchrun, which would kill its ranks 30 s later, ignores it.

    Args:
        command: Program and arguments.
        has_ranks: Whether it starts the run's processes as its children, instead of being the run.

    Returns:
        Its exit code, and whether a signal was received.
    """
    from submitit.slurm.slurm import SlurmJobEnvironment

    usual = SlurmJobEnvironment._usr_sig()

    def ignore_signals() -> None:
        for number in (usual, signal.SIGTERM) if has_ranks else (usual,):
            signal.signal(number, signal.SIG_IGN)

    environment = {**os.environ, **(ONLY_CTRL_C if has_ranks else {})}
    signalled_at = 0.0
    with (
        _received_signals(signal.SIGTERM, usual) as received,
        subprocess.Popen(command, env=environment, preexec_fn=ignore_signals) as child,
    ):
        while (code := child.poll()) is None:
            if received and not signalled_at:
                _say(f"{signal.Signals(received[0]).name}: the run is saved and stops")
            if received and (time.monotonic() > signalled_at + REPEAT_S if has_ranks else not signalled_at):
                signalled_at = time.monotonic()
                run = psutil.Process(child.pid)
                _stop(run.children() if has_ranks else [run] if received[0] == usual else [])
            time.sleep(POLL_S)
    return code, bool(received)


@contextmanager
def _received_signals(*numbers: int) -> Iterator[list[int]]:
    """Collect signals, in place of submitit's handlers, within a block."""
    received: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        received.append(number)

    previous = {number: signal.signal(number, note) for number in numbers}
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _stop(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.terminate()


def _state(job: SlurmJobEnvironment) -> str:
    """Return the job's state; a cancelled job is no longer RUNNING, and neither is one that SLURM requeues itself."""
    command = ["squeue", "--noheader", "--format=%T", f"--jobs={job.job_id}"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _requeue() -> None:
    """Requeue by submitit's own handler, which is installed again: it stores this object and ends the process."""
    from submitit.slurm.slurm import SlurmJobEnvironment

    number = SlurmJobEnvironment._usr_sig()
    handler = signal.getsignal(number)
    assert callable(handler)
    handler(number, None)


def _machine(job: SlurmJobEnvironment) -> Machine:
    # The batch script runs on the first node, and srun reports its address.
    first = os.environ.get("SLURM_LAUNCH_NODE_IPADDR") or job.hostnames[0]
    restart = os.environ.get("SLURM_RESTART_COUNT", "0")
    port = FIRST_PORT + int(job.raw_job_id) % PORTS
    return Machine(job.node, job.num_nodes, first, port, f"{job.raw_job_id}-{restart}")


def _say(message: str) -> None:
    print(f"slurm     {message}", file=sys.stderr, flush=True)
