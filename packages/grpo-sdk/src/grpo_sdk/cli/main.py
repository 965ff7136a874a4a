"""The entry point `grpo`, and the conversion of errors to exit codes."""

from __future__ import annotations

import errno
import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from grpo_sdk.cli.group import HelpFormatter, LazyGroup
from grpo_sdk.cli.options import HELP
from grpo_sdk.cli.terminal import Interrupts, interrupts, standard_streams
from grpo_sdk.distributions import SDK, TRAINER, missing, version_of
from grpo_sdk.errors import DamagedFileWarning, ExitCode, GrpoError, LostContactError, UserError, first_line


def _print_versions(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if not value or ctx.resilient_parsing:
        return
    for package in (SDK, TRAINER):
        if version := version_of(package):
            click.echo(f"{package} {version}")
    ctx.exit()


@click.group(cls=LazyGroup, invoke_without_command=True, context_settings=HELP)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_versions, help="Show the versions."
)
@click.pass_context
def grpo(ctx: click.Context) -> None:
    """Reinforcement learning of language models on verifiable tasks.

    Try: grpo run, which trains the embedded model on math.arithmetic.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `grpo`.

    Args:
        arguments: Command-line arguments; by default those of the process.

    Returns:
        The exit code: see `ExitCode`.
    """
    return run_command(grpo, arguments, "grpo")


def run_command(command: click.Command, arguments: Sequence[str] | None, name: str) -> int:
    """Run a command; every error becomes lines on stderr and an exit code."""
    with interrupts() as interrupted, standard_streams() as stdout, damage_on_stderr():
        code = _run(command, arguments, name, interrupted)
        stdout.flush()
        if stdout.problem:
            failure = _fail(f"stdout cannot be written: {stdout.problem}. Its output is lost.", ExitCode.FAILED)
            return code or failure
        return code


@contextmanager
def damage_on_stderr() -> Iterator[None]:
    """Print each `DamagedFileWarning` as a line on stderr, once; a command may read a file several times."""
    told: set[str] = set()
    with warnings.catch_warnings():
        warnings.simplefilter("always", DamagedFileWarning)
        show_other = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if not issubclass(category, DamagedFileWarning):
                show_other(message, category, *place, **more)
            elif str(message) not in told:
                from grpo_sdk.display.progress import Waiting
                from grpo_sdk.display.text import err

                told.add(str(message))
                Waiting(err()).on_warning(str(message))

        warnings.showwarning = show
        yield


def _run(command: click.Command, arguments: Sequence[str] | None, name: str, interrupted: Interrupts) -> int:
    try:
        return _result(command, arguments, name)
    except Exception as error:
        interrupted.cancel()
        if interrupted.happened:  # as libraries do that turn what ends an import into an ImportError
            return _interrupted()
        return _failure(error)
    except KeyboardInterrupt:
        interrupted.cancel()
        return _interrupted()
    except SystemExit as error:  # click ends so when the reader of a pipe has gone
        return error.code if isinstance(error.code, int) else ExitCode.FAILED


def _result(command: click.Command, arguments: Sequence[str] | None, name: str) -> int:
    load_dotenv(Path(".env"))
    words = sys.argv[1:] if arguments is None else list(arguments)
    _refuse_empty(words)
    click.Context.formatter_class = HelpFormatter  # of every command, those of plugins included
    result = command.main(args=list(words), prog_name=name, standalone_mode=False, obj=words)
    return result if isinstance(result, int) else ExitCode.DONE


def _interrupted() -> int:
    from grpo_sdk.launched import is_silent_rank

    if is_silent_rank():  # the first rank says it
        return ExitCode.INTERRUPTED
    return _fail("interrupted; nothing more is written.", ExitCode.INTERRUPTED, label="stopped")


def _failure(error: Exception) -> int:
    if isinstance(error, GrpoError):
        from grpo_sdk.launched import (
            LOST_CONTACT,
            is_first_to_report,
            is_first_to_say,
            is_silent_rank,
            wait_for_first_rank,
        )

        if isinstance(error, LostContactError) and not is_first_to_say():
            return LOST_CONTACT
        if (error.is_shared and is_silent_rank()) or not is_first_to_report(type(error).__name__):
            wait_for_first_rank()
            return int(error.exit_code)
        return _fail(str(error), error.exit_code)
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.format_message(), err=True)
        return int(ExitCode.USER_MISTAKE)
    if isinstance(error, click.ClickException):
        return _fail(_usage(error), error.exit_code)
    if isinstance(error, click.Abort):
        return _interrupted()
    return _unexpected(error)  # out of memory and a full disk get advice; anything else is a bug


MAY_BE_EMPTY = ("--completion", "--prediction")
"""Options whose value is a model's text, which may be empty."""


def _refuse_empty(words: Sequence[str]) -> None:
    """Refuse an empty argument, as an unset shell variable produces: `--model "$MODEL"`.

    Raises:
        UserError: an argument is empty; names the option.
    """
    for before, word in zip(["", *words], words, strict=False):
        option = before if not word and before.startswith("--") and "=" not in before else word.partition("=")[0]
        is_empty = not word or (word.startswith("--") and word.endswith("=") and word.count("=") == 1)
        if is_empty and option not in MAY_BE_EMPTY:
            what = f"{option} is empty" if option else "an argument is empty ('')"
            raise UserError(f"{what}: give a value, or leave it out. Is a variable of the shell unset?")


def load_dotenv(path: Path) -> None:
    """Add the variables of a .env file to the environment, except settings and variables that are already set.

    Settings are left to `load_config`, because they rank below those of the environment; the others are for libraries
    (HF_HOME, WANDB_API_KEY) and reserved names such as GRPO_PLUGINS.
    """
    if not path.exists():
        return
    from grpo_sdk.environment import PREFIX, RESERVED_ENVIRONMENT, read_dotenv

    for name, value in read_dotenv(path).items():
        if not name.upper().startswith(PREFIX) or name in RESERVED_ENVIRONMENT:
            os.environ.setdefault(name, value)


def _fail(message: str, code: int, *, label: str = "error") -> int:
    from rich.text import Text

    from grpo_sdk.display.text import err, visible

    if os.environ.get("GRPO_DEBUG") == "1" and sys.exc_info()[0] is not None:
        traceback.print_exc()
    lines = "\n".join(visible(line) for line in message.splitlines())
    err().print(Text.assemble((f"{label}: ", "bold red"), lines), soft_wrap=not sys.stderr.isatty())
    return int(code)


def _usage(error: click.ClickException) -> str:
    message = error.format_message()
    if isinstance(error, click.UsageError) and error.ctx is not None:
        end = "" if message.endswith((".", "?")) else "."
        return f"{message}{end} See {error.ctx.command_path} --help."
    return message


_REFUSED = {
    errno.ENAMETOOLONG: "",
    errno.EACCES: ". Its owner can allow it (chmod), or name another place.",
    errno.EPERM: ". Its owner can allow it (chmod), or name another place.",
    errno.EROFS: ". Name a place that can be written.",
}
"""Errors of the system about a file that are no bug, with what helps."""


def _unexpected(error: Exception) -> int:
    from grpo_sdk.files import disk_full_reason

    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return _fail(
            f"out of memory: {first_line(error)}. Lower "
            "trainer.micro_batch_tokens, engine.max_batch_tokens or trainer.max_completion_length, or set "
            "trainer.gradient_checkpointing=true or lora.enabled=true.",
            ExitCode.FAILED,
        )
    if said := missing(error):
        which = WHICH_TORCH if "package torch," in said else ""
        return _fail(f"this {said} (the environment is {sys.prefix}){which}", ExitCode.USER_MISTAKE)
    if reason := disk_full_reason(error):
        return _fail(
            f"{reason}: something could not be written. What a run saved before stands: make room, then grpo resume "
            "RUN (grpo runs lists them).",
            ExitCode.FAILED,
        )
    if isinstance(error, OSError) and error.errno in _REFUSED and error.filename is not None:
        return _fail(f"{error.strerror}: {error.filename}{_REFUSED[error.errno]}", ExitCode.USER_MISTAKE)
    traceback.print_exception(error)
    return _fail(
        f"this is a bug in grpo or in a plugin, not yours: {type(error).__name__}: {error}. "
        "Please report it with the lines above.",
        ExitCode.FAILED,
    )


WHICH_TORCH = "; https://pytorch.org/get-started names the build for your GPU."
