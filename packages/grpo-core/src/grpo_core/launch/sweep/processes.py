"""The runs of a sweep as processes: some at a time, stopped by a signal, each saved when it is."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from grpo_core.launch.processes import ending_with_parent
from grpo_core.launch.sweep.folder import LOG, RunStatus, SweepFolder, SweepRun
from grpo_core.tracking import presence
from grpo_core.training.stop import stop_on_signal
from grpo_sdk.display import lines
from grpo_sdk.display.text import err, visible

COMMAND = (sys.executable, "-m", "grpo_core")

POLL_S = 0.2
"""Time between two looks at the processes."""

THREADS = "OMP_NUM_THREADS"
DEVICES = "CUDA_VISIBLE_DEVICES"


class Queue:
    """Where the next run comes from: here a list of runs that are known beforehand.

    Args:
        runs: The runs, in their order.
    """

    def __init__(self, runs: Sequence[SweepRun]) -> None:
        self._runs = iter(runs)

    def take(self) -> SweepRun | None:
        """Return the next run to start; None if there is none."""
        return next(self._runs, None)

    def is_hopeless(self, run: SweepRun, path: Path) -> bool:
        """Whether a run that goes on in `path` is to end early."""
        return False

    def ended(self, status: RunStatus) -> None:
        """Take note of a run that has ended."""


class Progress:
    """Prints a line when a run starts or ends.

    Args:
        count: Runs to do.
    """

    def __init__(self, count: int) -> None:
        self._count, self._ended = count, 0

    def line(self, label: str, text: str) -> None:
        """Print a line."""
        err().print(visible(f"{label:<9} {text}"), soft_wrap=True)

    def ended(self, status: RunStatus, seconds: float) -> None:
        """Print a run that has ended."""
        self._ended += 1
        failed = f", exit code {status.exit_code}: {status.last_line}" if status.state in ("failed", "killed") else ""
        number = f"{self._ended} of {self._count}"
        self.line(status.state, f"{status.run.name}  {number}, {lines.duration(seconds)}{failed}")


@dataclass(slots=True)
class _Process:
    """A run that goes on.

    Attributes:
        run: The run.
        slot: Number of its place among the runs that go on at a time.
        child: Its process; None where a process of an earlier sweep still works in its folder.
        since: Start, in seconds of the monotonic clock.
        is_pruned: Whether it is ended early.
        is_told: Whether it was told to end; a second signal would end it unsaved.
    """

    run: SweepRun
    slot: int
    child: subprocess.Popen[bytes] | None
    since: float
    is_pruned: bool = False
    is_told: bool = False


class Jobs:
    """Runs processes, some at a time.

    Args:
        folder: The sweep.
        count: Processes at a time.
        progress: Prints what happens.
    """

    def __init__(self, folder: SweepFolder, count: int, progress: Progress) -> None:
        self._folder, self._count, self._progress = folder, count, progress
        self._devices = visible_devices() if count > 1 else []
        self._processes: list[_Process] = []
        self._stop = False

    def run(self, queue: Queue) -> bool:
        """Run everything in a queue; a failed run does not stop the others.

        Returns:
            Whether it was interrupted: the runs have saved themselves then.
        """
        with stop_on_signal(self._request, lambda _: self._progress.line("note", STOPPING)):
            try:
                while self._fill(queue) or self._processes:
                    time.sleep(POLL_S)
                    for process in list(self._processes):
                        self._look(process, queue)
            except KeyboardInterrupt:
                self._end(subprocess.Popen.kill)
                raise
            except BaseException:
                self._end(subprocess.Popen.terminate)
                raise
        return self._stop

    def _request(self) -> None:
        self._stop = True

    def _fill(self, queue: Queue) -> bool:
        """Start runs while there is room; whether there may be more."""
        if self._stop:
            for process in list(self._processes):
                self._terminate(process)
            return False
        while len(self._processes) < self._count:
            if (run := queue.take()) is None:
                return False
            self._start(run)
        return True

    def _start(self, run: SweepRun) -> None:
        slot = min(set(range(self._count)) - {process.slot for process in self._processes})
        path = self._folder.run_path(run)
        if path is not None and presence.is_alive(path):
            writer = presence.noted(path)
            self._progress.line("note", f"{run.name} goes on in {writer}, which an earlier sweep started")
            self._processes.append(_Process(run, slot, None, time.monotonic()))
            return
        words = self._folder.next_words(run)
        folder = self._folder.folder_of(run)
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / LOG).open("ab") as log:
            child = start_process(words, log, self._environment(slot))
        self._processes.append(_Process(run, slot, child, time.monotonic()))
        self._progress.line("resumed" if words[0] == "resume" else "started", f"{run.name}  {run}")

    def _look(self, process: _Process, queue: Queue) -> None:
        """Look whether a run has ended, or should."""
        run, path = process.run, self._folder.run_path(process.run)
        if process.child is None:
            if path is not None and presence.is_alive(path):
                return
            self._processes.remove(process)
            if not self._stop and not self._folder.status(run).is_done:
                self._start(run)
                return
        elif (code := process.child.poll()) is None:
            if path is not None and not process.is_pruned and not self._stop and queue.is_hopeless(run, path):
                process.is_pruned = True
                self._terminate(process)
            return
        else:
            self._processes.remove(process)
            self._folder.record(run, code, is_pruned=process.is_pruned)
        status = self._folder.status(run)
        queue.ended(status)
        self._progress.ended(status, time.monotonic() - process.since)

    def _environment(self, slot: int) -> dict[str, str]:
        assert self._folder.plan is not None
        threads = self._folder.plan.threads
        return {
            **({} if threads is None else {THREADS: str(threads)}),
            **({DEVICES: self._devices[slot % len(self._devices)]} if self._devices else {}),
        }

    def _terminate(self, process: _Process) -> None:
        """Tell a run to save itself and end; one of an earlier sweep was told so when that sweep ended."""
        if process.child is None:
            self._processes.remove(process)
        elif not process.is_told:
            process.is_told = True
            process.child.terminate()

    def _end(self, how: Callable[[subprocess.Popen[bytes]], None]) -> None:
        children = [process.child for process in self._processes if process.child is not None]
        for child in children:
            how(child)
        for child in children:
            child.wait()


STOPPING = "stopping: the runs are saved first; press Ctrl-C again to stop at once"


def start_process(words: list[str], log: IO[bytes], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start `grpo WORDS` with its output in a log; on Linux it is saved and ends when this process is killed."""
    return subprocess.Popen(
        [*COMMAND, *words],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env={**os.environ, **environment},
        start_new_session=True,  # a terminal's Ctrl-C reaches the sweep alone, which stops its runs
        preexec_fn=ending_with_parent(),
    )


def threads_for(jobs: int) -> tuple[int | None, str]:
    """Return the threads of each run on the CPU, and the reason; None leaves them to the run."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    given = os.environ.get(THREADS, "")
    if given.isdigit() and int(given[:6]) > 0:
        return int(given[:6]), f"{THREADS}={given[:6]}"
    if jobs == 1:
        return None, ""
    each = max(1, cores // jobs)
    return each, f"{jobs} runs share {cores} cores"


def visible_devices() -> list[str]:
    """Return the CUDA devices that runs are distributed over; none where there is only one, or no driver."""
    if given := os.environ.get(DEVICES, ""):
        return given.split(",") if "," in given else []
    if not os.path.exists("/dev/nvidiactl"):
        return []
    import torch

    count = torch.cuda.device_count()
    return [str(number) for number in range(count)] if count > 1 else []
