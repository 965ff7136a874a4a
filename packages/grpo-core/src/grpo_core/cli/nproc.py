"""`--nproc N` and its kin: the same command in several processes, of this machine or of several."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from grpo_core.launch.processes import Machine, ending_with_parent
from grpo_sdk.display.invocation import without
from grpo_sdk.errors import ExitCode, UserError
from grpo_sdk.launched import FOLDER_FILE, is_rank

MOST = 1024
"""Processes of a machine, machines of a run, and restarts at most: more is a mistake."""

DEFAULT_PORT = 29500

_OPTIONS = (
    click.option("--nproc", metavar="N", help="Train in N processes of this machine."),
    click.option("--nnodes", metavar="N", help="Machines of the run; start the command on each of them."),
    click.option("--node-rank", metavar="I", help="Which of them this is: 0, which hosts the rendezvous, to N - 1."),
    click.option("--rdzv-endpoint", metavar="HOST:PORT", help="Address of the machine with --node-rank 0."),
    click.option("--max-restarts", metavar="K", help="Resume from the last checkpoint up to K times after a failure."),
)

NAMES = ("nproc", "nnodes", "node_rank", "rdzv_endpoint", "max_restarts")


def launch_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that start several processes to a command, in the order of `NAMES`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def end_with_launcher() -> None:
    """Have this process stop and save the run when its launcher is killed, which cannot tell it any more."""
    if FOLDER_FILE in os.environ and (request := ending_with_parent()) is not None:
        request()


class Launch:
    """The processes that a command is to be run in, as its options say.

    Args:
        options: The command's options, of which `NAMES` are taken.

    Attributes:
        is_needed: Whether any of the options is given, and this process is no rank already.
        processes: Processes of this machine.
        machine: Which of the run's machines this is.
        restarts: Restarts at most.

    Raises:
        UserError: an option is no such number, or one is missing that another needs.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        given = {name: options[name] for name in NAMES}
        self.is_needed = any(value is not None for value in given.values()) and not is_rank()
        self.processes = process_number(given["nproc"] or "1")
        count = _number("--nnodes", given["nnodes"] or "1", 1, "the number of machines of the run")
        self.machine = Machine() if count == 1 else _machine(given, count)
        if count == 1 and (given["node_rank"] or given["rdzv_endpoint"]):
            raise UserError("--node-rank and --rdzv-endpoint are for a run on several machines: add --nnodes N.")
        self.restarts = _number("--max-restarts", given["max_restarts"] or "0", 0, "a number of restarts")

    @property
    def size(self) -> int:
        """Processes of the run."""
        return self.processes * self.machine.count

    def check_stop(self, stop_after: object) -> None:
        """Refuse restarts of a command that ends by itself before the run does.

        Raises:
            UserError: both are given.
        """
        if self.restarts and stop_after is not None:
            raise UserError("--max-restarts with --stop-after: a restart would count its steps anew. Leave one out.")


def start(
    launch: Launch,
    words: Sequence[str],
    shown: Sequence[str],
    run: Path | None = None,
    *,
    save_every: int | None = None,
) -> int:
    """Run `grpo WORDS` in the processes of this machine.

    Args:
        launch: The processes.
        words: Words after `grpo`.
        shown: Options of a `grpo resume` that goes on after a failure, of `display_words`.
        run: The run's folder, where the words resume one.
        save_every: `trainer.save_every` of a new run.

    Returns:
        0, or the exit code of the first process that failed.

    Raises:
        InfrastructureError: a process was killed, and so has not printed a reason.
    """
    from grpo_core.launch.supervisor import Command, Terminated, supervise

    command = Command(words, shown, run, save_every)
    say = partial(click.echo, err=True)
    try:
        return supervise(command, launch.processes, launch.machine, launch.restarts, say)
    except Terminated as error:
        say(f"stopped: {error} ended the processes; nothing more is written.")
        return ExitCode.INTERRUPTED


def _machine(given: Mapping[str, str | None], count: int) -> Machine:
    for name in ("node_rank", "rdzv_endpoint"):
        if given[name] is None:
            option = "--" + name.replace("_", "-")
            raise UserError(
                f"--nnodes {count} needs {option}: grpo run --nnodes {count} --node-rank I --rdzv-endpoint HOST:PORT "
                "--nproc N on each machine, with HOST:PORT an address of the one with --node-rank 0."
            )
    number = _number("--node-rank", given["node_rank"] or "", 0, f"the number of this machine, 0 to {count - 1}")
    if number >= count:
        raise UserError(f"--node-rank {number} must be below --nnodes {count}: machines are counted from 0.")
    endpoint = given["rdzv_endpoint"] or ""
    host, colon, port = endpoint.rpartition(":")
    if not colon:
        host, port = endpoint, str(DEFAULT_PORT)
    if not host or not port.isdigit() or not 1 <= int(port[:6]) <= 65535:
        raise UserError(f"--rdzv-endpoint {endpoint[:80]!r} must be HOST:PORT, such as node1:{DEFAULT_PORT}.")
    return Machine(number, count, host.strip("[]"), int(port))


def _number(option: str, text: str, least: int, what: str) -> int:
    if not text.isascii() or not text.isdigit() or not least <= int(text[:6]) <= MOST:
        raise UserError(f"{option} {text[:40]!r} must be {what}, {least} or more.")
    return int(text)


def process_number(nproc: str) -> int:
    """The number of processes.

    Raises:
        UserError: it is none.
    """
    return _number("--nproc", nproc, 1, "the number of processes on this machine")


def words_of(context: click.Context) -> list[str]:
    """Return the arguments after a command's name on the command line, without those of `launch_options`."""
    words = list(context.find_root().obj)
    if words and words[0] == context.command.name and context.parent is not None:
        words = words[1:]
    return without(words, *("--" + name.replace("_", "-") for name in NAMES))


def display_words(*, as_json: bool, quiet: bool, every: int | None, allow: Sequence[str] = ()) -> list[str]:
    """Return the options of `grpo resume` with which it shows and allows what the command does that it goes on with."""
    words = [*(["--json"] if as_json else []), *(["--quiet"] if quiet else [])]
    words += [] if every is None else ["--every", str(every)]
    return words + [word for name in allow for word in ("--allow", name)]
