"""The processes of a run on this machine, through torchrun's own launcher, started again after a failure.

torchrun can restart processes itself, but runs the same command again, whatever ended the last one. Here only what a
new start may mend is started again, as `grpo resume` where there is a checkpoint; the first machine decides it for all.
"""

from __future__ import annotations

import logging
import os
import shlex
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from grpo_core.checkpoints import CheckpointStore
from grpo_core.checkpoints.checksums import read_checksums
from grpo_core.launch.meeting import MEETING_S, Meeting
from grpo_core.launch.processes import Machine, latest_checkpoint, several
from grpo_sdk.errors import ExitCode, InfrastructureError, first_line
from grpo_sdk.launched import FOLDER_FILE, LOST_CONTACT, saving_mark

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

MONITOR_S = 0.2
"""Time between two looks at the processes."""

SAVING_S = 3600
"""Time for the processes to finish a step and save the run after a signal; torchrun's 30 s may be less than a step."""

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Signals that torchrun handles."""

SIGNALS = "TORCHELASTIC_SIGNALS_TO_HANDLE"
"""Environment variable with the signals that torchrun handles; `grpo launch slurm` sets it, too."""

FINAL_CODES = frozenset({ExitCode.USER_MISTAKE, ExitCode.ABSTENTION_LIMIT, ExitCode.INTERRUPTED})
"""Exit codes after which the processes are not started again: the next start would end alike, or a user stopped it."""


class Terminated(BaseException):
    """A signal has ended the processes of this machine; its name."""


@dataclass(frozen=True, slots=True)
class Command:
    """What the processes run.

    Attributes:
        words: Words after `grpo` of the first start.
        options: Options of `grpo resume` in a restart.
        run: The run's folder, where the words resume one.
        save_every: `trainer.save_every` of a new run.
    """

    words: Sequence[str]
    options: Sequence[str]
    run: Path | None = None
    save_every: int | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """What ended the processes.

    Attributes:
        reason: One sentence.
        code: Exit code of the process that ended first, negative where a signal killed it.
    """

    reason: str
    code: int


def supervise(command: Command, processes: int, machine: Machine, restarts: int, say: Callable[[str], None]) -> int:
    """Run `grpo` in several processes; all end when one fails, and are started again from the last checkpoint.

    Args:
        command: What they run.
        processes: Processes of this machine.
        machine: Which of the run's machines this is.
        restarts: Restarts at most.
        say: Receives a line of each restart and wait for other machines, and of the last checkpoint where a process
            has printed why it ended.

    Returns:
        0, or the exit code of the first process that failed.

    Raises:
        UserError: the address of the first machine has no such name.
        InfrastructureError: the first machine cannot be reached, or no process could print why it ended; the message
            says what is known.
        Terminated: a signal other than Ctrl-C has ended the processes before the run could be saved.
    """
    with (
        _interrupted_by_signals(),
        tempfile.TemporaryDirectory(prefix="grpo_") as folder,
    ):
        meeting, note = Meeting(machine, say), Path(folder) / "run"
        saved = 0 if command.run is None else CheckpointStore(command.run).newest_serial()
        words, attempt = command.words, 0
        while (failure := _failure(words, processes, meeting, attempt, note)) is not None:
            if failure.code in FINAL_CODES:
                return failure.code
            run = Path(os.fsdecode(note.read_bytes())) if note.exists() else command.run
            latest = None if run is None else latest_checkpoint(run)
            if attempt == restarts:
                return _end(
                    failure, _advice(run, latest, command, [*machine.options, *several(processes)]), latest, say
                )
            # By serial: a checkpoint may replace another of its name, and the link may go back to an older one.
            is_new = latest is not None and read_checksums(latest).serial > saved
            resumed = ["resume", str(run), *command.options]
            words = meeting.agreed(attempt, resumed if is_new else command.words)
            attempt += 1
            say(f"restart {attempt} of {restarts}: {failure.reason}; grpo {shlex.join(words)}")
    return ExitCode.DONE


def _end(failure: Failure, advice: str, latest: Path | None, say: Callable[[str], None]) -> int:
    message = f"{failure.reason}. {advice}"
    if failure.code < 0 or failure.code == LOST_CONTACT:
        raise InfrastructureError(message)
    if latest is not None:  # else the error that the process has printed says all there is to say
        say(message)
    return failure.code


def _advice(run: Path | None, latest: Path | None, command: Command, options: Sequence[str]) -> str:
    if latest is not None:
        return f"The last checkpoint is {latest}: {shlex.join(['grpo', 'resume', str(run), *options])}"
    log = None if run is None else run / "logs" / "train_log.jsonl"
    if log is None or not log.exists() or not log.stat().st_size:
        return "No step was done before it."
    each = command.save_every
    when = "trainer.save_every=N saves one every N steps" if each is None else f"trainer.save_every={each}"
    return f"No checkpoint was saved before it ({when})."


def _failure(words: Sequence[str], processes: int, meeting: Meeting, attempt: int, note: Path) -> Failure | None:
    """Run the processes once; None if all of them succeed."""
    import torch.distributed.launcher.api as launcher
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    machine = meeting.machine
    is_alone = machine.count == 1
    config = launcher.LaunchConfig(
        min_nodes=machine.count,
        max_nodes=machine.count,
        nproc_per_node=processes,
        run_id=f"{machine.job}-{attempt}",
        rdzv_backend="c10d" if is_alone else "static",  # whose ranks are in the order of the machines
        rdzv_endpoint="localhost:0" if is_alone else f"{machine.first}:{machine.port}",
        rdzv_configs={"timeout": MEETING_S} if is_alone else {"timeout": MEETING_S, "rank": machine.number},
        max_restarts=0,
        monitor_interval=MONITOR_S,
    )
    if hasattr(config, "signals_to_handle"):  # newer versions of torch set the variable from it
        config.signals_to_handle = os.environ[SIGNALS]
    _silence_launcher()
    mark = saving_mark(note)
    for each in note.parent.iterdir():  # of the last start
        each.unlink()
    os.environ[FOLDER_FILE] = str(note)
    try:
        meeting.gather(attempt)  # torchrun would wait for them without a look at signals
        with _restored_handlers():
            launcher.elastic_launch(config, sys.executable)("-m", "grpo_core", *words)
    except ChildFailedError as error:
        return _first(error.failures)
    except SignalException as error:
        if not mark.exists() and error.sigval != signal.SIGINT:  # of which the first rank says so itself
            raise Terminated(error.sigval.name) from None
        return Failure(f"{error.sigval.name} has stopped the processes", ExitCode.INTERRUPTED)
    except RuntimeError as error:  # of a store: torch has its own classes below it, and uses them at times
        if is_alone:
            raise
        reason = f"the other machines could not be reached at {machine.first}:{machine.port}"
        return Failure(f"{reason} ({first_line(error)})", LOST_CONTACT)
    finally:
        del os.environ[FOLDER_FILE]
    return None


def _first(failures: dict[int, ProcessFailure]) -> Failure:
    """The failure that the others follow from: a kill, then an error, then the contact lost to one of these."""

    def order(rank: int) -> tuple[int, int]:
        code = failures[rank].exitcode
        return (2 if code in (LOST_CONTACT, -signal.SIGTERM) else 1 if code > 0 else 0), failures[rank].timestamp

    rank = min(failures, key=order)
    code = failures[rank].exitcode
    if code < 0:
        return Failure(f"rank {rank} was killed by {signal.Signals(-code).name}, and the others were ended", code)
    if code == LOST_CONTACT:
        return Failure("the processes of this machine have lost contact with the others", code)
    return Failure(f"rank {rank} failed (its error is above), and the others were ended", code)


@contextmanager
def _interrupted_by_signals() -> Iterator[None]:
    """Raise `Terminated` at a signal; torchrun, whose handlers replace these, ignores what is ignored here (nohup)."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Terminated(signal.Signals(number).name)

    handled = [number for number in ENDING if signal.getsignal(number) != signal.SIG_IGN]
    os.environ.setdefault(SIGNALS, ",".join(number.name for number in handled))
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(SAVING_S))
    with _restored_handlers():
        for number in handled:
            if signal.getsignal(number) == signal.SIG_DFL:
                signal.signal(number, interrupt)
        yield


@contextmanager
def _restored_handlers() -> Iterator[None]:
    """Restore the handlers of signals after a block that replaces them."""
    previous = {number: signal.getsignal(number) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _silence_launcher() -> None:
    """Leave out what torchrun logs of processes that fail, which have said why."""
    for name in list(logging.root.manager.loggerDict):
        if name.startswith("torch.distributed.elastic"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
