"""The words of `grpo run` that a launcher passes on: read and checked before anything is started."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from grpo_core.cli.nproc import process_number
from grpo_core.cli.run import run, settings_of
from grpo_core.cli.settings import read_settings
from grpo_core.config import RunConfig
from grpo_sdk.display.invocation import without
from grpo_sdk.errors import UserError, near_match

PASSED_ON = {"ignore_unknown_options": True, "help_option_names": ["-h", "--help"]}
"""Context settings of a command that passes options on to `grpo run`."""

RUN_OPTIONS = click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[OPTIONS OF GRPO RUN]...")

_HERE_ONLY = ("dry_run", "quick", "show_config", "nnodes", "node_rank", "rdzv_endpoint", "max_restarts")
"""Options of `grpo run` that start no run, or one of machines that are not the launcher's."""


@dataclass(frozen=True, slots=True)
class RunWords:
    """A command line of `grpo run`.

    Attributes:
        words: Words after `grpo`, without `--nproc` and the output folder.
        config: Settings as they are given here; the machine of the run resolves the rest.
        nproc: Processes of each machine, where it is given.
    """

    words: list[str]
    config: RunConfig
    nproc: int | None


def read_run_words(words: Sequence[str], context: click.Context) -> RunWords:
    """Read and check the words of `grpo run`.

    Args:
        words: Options and settings, as after `grpo run`.
        context: Context of the launcher, whose options the user may have meant.

    Raises:
        UserError: as for `grpo run`; also a word with control characters, which no script can show.
    """
    for word in words:
        if not word.isprintable():
            raise UserError(f"{word[:40]!r} has control characters: write it in a file, and give --config FILE.")
    params = _parsed(words, context)
    for name in _HERE_ONLY:
        if params[name]:
            option = "--" + name.replace("_", "-")
            raise UserError(f"{option} is of grpo run on this machine: give it before --, or leave it out.")
    settings = read_settings(settings_of(params), params["overrides"], params["config_file"])
    settings.add_recipe()
    config = settings.validated().config
    nproc = None if params["nproc"] is None else process_number(params["nproc"])
    kept = without(words, "--nproc", "--output-dir", "output_dir")  # which the launcher gives itself
    return RunWords(["run", *kept], config, nproc)


def check_tasks(config: RunConfig) -> None:
    """Check that the tasks of a run exist here, with options that fit training and evaluation.

    Raises:
        UserError: one does not.
    """
    from grpo_core.evaluation.held_out import labelled
    from grpo_core.evaluation.plan import matchups
    from grpo_sdk.plugins.tasks import bind
    from grpo_sdk.task.spec import parse_task_specs

    tasks = [bind(spec) for specs in (config.task, config.eval.task) if specs for spec in parse_task_specs(specs)]
    matchups(labelled(tasks))


def _parsed(words: Sequence[str], context: click.Context) -> dict[str, Any]:
    try:
        return run.make_context("grpo run", list(words)).params
    except click.NoSuchOption as error:
        known = [option for command in (context.command, run) for each in command.params for option in each.opts]
        hint = near_match(error.option_name, [option for option in known if option.startswith("--")])
        raise UserError(
            f"no option {error.option_name}, neither of {context.command_path} nor of grpo run.{hint}"
        ) from None
