"""The command `grpo`, whose subcommands are imported when they are run, and help that fits into narrow terminals."""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import click

from grpo_sdk.display.text import visible
from grpo_sdk.errors import PluginError, UnknownNameError, UserError, unknown_name
from grpo_sdk.plugins import host

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SECTIONS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Tasks": {
        "tasks": ("grpo_sdk.cli.tasks:tasks", "List the installed tasks, or show one."),
        "sample": ("grpo_sdk.cli.sample:sample", "Show rows of a task with prompt, gold and score."),
        "explain": ("grpo_sdk.cli.explain:explain", "Show why a completion gets its score."),
        "score": ("grpo_sdk.cli.score:score", "Score a file of completions."),
        "check": ("grpo_sdk.cli.check:check", "Check a task for mistakes, and search it for weaknesses."),
        "judge": ("grpo_sdk.cli.judge:judge", "Measure a task's judges on completions with known verdicts."),
        "serve": ("grpo_sdk.cli.serve:serve", "Offer tasks to other trainers over HTTP."),
        "export": ("grpo_sdk.cli.export:export", "Write what another trainer needs to train on a task."),
        "new": ("grpo_sdk.cli.new:new", "Write a plugin with a small task to start from."),
    },
    "Training": {
        "run": ("grpo_core.cli.run:run", "Train a model on a task; grpo-run is the same."),
        "resume": ("grpo_core.cli.resume:resume", "Continue a run that was stopped, or for more steps."),
        "warm-start": (
            "grpo_core.cli.warm_start:warm_start",
            "Fine-tune a model on a task's golds, by TRL.",
        ),
        "sweep": ("grpo_core.cli.sweep:sweep", "Run every combination of some settings, and compare the results."),
        "launch": ("grpo_core.cli.launchers.group:launch", "Start a run on a cluster, another machine or a cloud."),
        "forecast": (
            "grpo_core.cli.forecast:forecast",
            "Predict from samples whether and how fast a run would learn.",
        ),
    },
    "Results": {
        "eval": ("grpo_core.cli.evaluate:evaluate", "Evaluate a model on held-out rows."),
        "report": ("grpo_core.cli.report:report", "Write a report of runs: one HTML file, or live in a browser."),
        "rollouts": ("grpo_core.cli.rollouts:rollouts", "Read a run's completions with their scores."),
        "replay": ("grpo_core.cli.replay:replay", "Score a run's completions again after its task has changed."),
        "runs": ("grpo_core.cli.runs:runs", "List runs, show one, or compare several."),
        "watch": ("grpo_core.cli.watch:watch", "Watch a run live in the terminal."),
        "publish": ("grpo_core.cli.publish:publish", "Write a run's model with its card to a folder or the hub."),
    },
    "Operations": {
        "doctor": ("grpo_sdk.cli.doctor:doctor", "Show what this machine can do, and what is broken."),
        "models": ("grpo_core.cli.models:models", "List the embedded models."),
        "profiles": ("grpo_core.cli.profiles:profiles", "List the GPU profiles, and what one sets for a model."),
        "fetch": ("grpo_core.cli.fetch:fetch", "Download models and data for machines without a network."),
        "archive": ("grpo_core.cli.archive:archive", "Copy a run to an object store or a folder, with checksums."),
        "restore": ("grpo_core.cli.archive:restore", "Copy an archived run back."),
    },
}
"""Section of the help -> name -> import path of the command, and its line in the help."""

COMMANDS = {name: command for section in SECTIONS.values() for name, command in section.items()}


class LazyGroup(click.Group):
    """A group that imports a command only when it is run; plugins add theirs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands: built-in ones first, then those of plugins."""
        return [*COMMANDS, *_plugin_commands()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None if there is no such command.

        Raises:
            PluginError: the command of a plugin is broken, or two plugins provide it.
        """
        if cmd_name in COMMANDS:
            return load_command(cmd_name)
        target = host.default_host().command(cmd_name)
        return None if target is None else _load_of_plugin(target)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the arguments name.

        Raises:
            UnknownNameError: there is no such command; names the closest match.
        """
        if not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            error = unknown_name("command", args[0], self.list_commands(ctx))
            raise UnknownNameError(f"{error}{host.default_host().not_loaded()}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; of several ranks the first alone ends the line of a ^C, as click does."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            if os.environ.get("RANK", "0") != "0":
                raise click.Abort from None
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the lines of the commands without importing them."""
        for section, commands in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(name, help_line) for name, (_, help_line) in commands.items()])
        if of_plugins := _plugin_commands():
            with formatter.section("Commands of plugins"):
                formatter.write_dl([(visible(name), visible(line)) for name, line in of_plugins.items()])
        plugins = host.default_host()
        problems = [
            *command_clashes(),
            *plugins.conflicts(),
            *(report.error for report in plugins.reports() if report.error),
        ]
        for problem in problems:
            formatter.write_paragraph()
            formatter.write_text(f"Not shown: {visible(problem)}")


def _plugin_commands() -> dict[str, str]:
    """Return the commands of plugins with their lines in the help."""
    return {name: line for name, line in host.default_host().commands().items() if name not in COMMANDS}


def command_clashes() -> list[str]:
    """Return messages about plugin commands that have the name of a built-in one, which takes precedence."""
    return [
        f"a plugin's command has the name of a built-in one: {name}."
        for name in host.default_host().commands()
        if name in COMMANDS
    ]


def load_command(name: str) -> click.Command:
    """Import a built-in command."""
    target = COMMANDS[name][0]
    module, _, attribute = target.partition(":")
    if not module.startswith("grpo_sdk.") and importlib.util.find_spec(module.partition(".")[0]) is None:
        raise UserError(f"grpo {name} needs the trainer, which is not installed: pip install grpo-core")
    command = getattr(importlib.import_module(module), attribute)
    assert isinstance(command, click.Command)
    return command


def _load_of_plugin(target: str) -> click.Command:
    if not sys.stderr.isatty():
        from grpo_sdk.display.libraries import hide_bars

        hide_bars()
    try:
        from grpo_sdk.plugins.loading import resolve  # pydantic, as above

        command: object = resolve(target)
    except Exception as error:  # the plugin's module may raise anything
        raise PluginError(f"the command at {target} cannot be imported: {error}") from error
    if not isinstance(command, click.Command):
        raise PluginError(f"{target} is a {type(command).__name__}; a plugin's command is a click command or group.")
    return command


MAX_WIDTH = 80
"""Columns of a help text in a wide terminal, as click has them."""

MIN_WIDTH = 30
"""Columns that a help text takes in any terminal."""

TERM_SHARE = 0.4
"""Largest part of a line for the names of options and commands; a longer one has a line of its own."""

EXAMPLE = "  "
"""How the lines of an example begin."""


class HelpFormatter(click.HelpFormatter):
    """Formatter for terminals of any width: click's writes at least 50 columns, and never folds examples.

    Args:
        indent_increment: Columns of each level.
        width: Columns of a line; None is the terminal's.
        max_width: Most columns of a line, where `width` is None.
    """

    def __init__(self, indent_increment: int = 2, width: int | None = None, max_width: int | None = None) -> None:
        if width is None:
            width = max(MIN_WIDTH, min(shutil.get_terminal_size().columns, max_width or MAX_WIDTH) - 2)
        super().__init__(indent_increment, width, max_width)

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """Write names with their descriptions, which begin in the same column."""
        rows = list(rows)
        widest = min(col_max, int(self.width * TERM_SHARE))
        column = self.current_indent + min(widest, max((len(name) for name, _ in rows), default=0)) + col_spacing
        for name, description in rows:
            lines = _fold_name(name, self.width - self.current_indent)
            lines = [f"{'':{self.current_indent}}{line}" for line in lines]
            texts = textwrap.wrap(description, self.width - column)
            if texts and len(lines[-1]) <= column - col_spacing:
                lines[-1] = f"{lines[-1]:{column}}{texts.pop(0)}"
            lines += [f"{'':{column}}{text}" for text in texts]
            self.write("".join(f"{line}\n" for line in lines))

    def write_text(self, text: str) -> None:
        """Write paragraphs; the commands of a block of examples are folded as a shell reads them."""
        head, mark, block = text.partition("\b\n")
        if not mark:
            super().write_text(text)
            return
        if head.strip():
            super().write_text(head.rstrip())
            self.write_paragraph()
        block, gap, rest = block.partition("\n\n")
        for line in block.rstrip().split("\n"):
            for folded in _fold_example(line, self.width - self.current_indent):
                self.write(f"{'':{self.current_indent}}{folded}".rstrip() + "\n")
        if gap and rest.strip():
            self.write_paragraph()
            self.write_text(rest)


def _fold_name(name: str, width: int) -> list[str]:
    """Fold the name of an option between its values, `[one|two]`."""
    return [line.replace("| ", "|") for line in textwrap.wrap(name.replace("|", "| "), width)]


def _fold_example(line: str, width: int) -> list[str]:
    """Fold a command between its words; each line but the last ends in the backslash that joins it to the next."""
    if len(line) <= width or not line.startswith(EXAMPLE):
        return [line]
    lines = textwrap.wrap(
        line.strip(),
        width - len(" \\"),
        initial_indent=EXAMPLE,
        subsequent_indent=EXAMPLE * 2,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [*(f"{each} \\" for each in lines[:-1]), lines[-1]]
