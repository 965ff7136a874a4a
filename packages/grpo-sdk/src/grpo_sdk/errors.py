"""Every error that a person may see, and the exit code the command line gives it."""

from __future__ import annotations

import difflib
import os
import traceback
from collections.abc import Iterable
from enum import IntEnum

MAX_NAME_CHARS = 200
"""Of an unknown name that an error repeats."""

MAX_LINE_CHARS = 1000
"""Of an error of other software that one of ours repeats."""


class ExitCode(IntEnum):
    """Exit codes of the command line."""

    DONE = 0
    FAILED = 1
    USER_MISTAKE = 2
    ABSTENTION_LIMIT = 3
    INTERRUPTED = 130

    @property
    def meaning(self) -> str:
        """What it says about a command, for the documentation."""
        return _MEANINGS[self]


_MEANINGS = {
    ExitCode.DONE: "done",
    ExitCode.FAILED: "the command failed, or what it examines is broken; stderr, or the result, says how",
    ExitCode.USER_MISTAKE: "a mistake in the command line, a file or a setting; one line says which",
    ExitCode.ABSTENTION_LIMIT: "too many completions could not be scored (`scoring.max_abstain_share`)",
    ExitCode.INTERRUPTED: "interrupted; a run has saved what was done",
}


class GrpoError(Exception):
    """Base of every error of ours; `str(error)` is one line for a person.

    Attributes:
        exit_code: What the command line ends with.
        is_shared: Whether every process of a run raises it, so that the first one alone prints it.
    """

    exit_code = ExitCode.FAILED
    is_shared = False

    def _render_traceback_(self) -> list[str]:
        """What IPython shows in a notebook: the line alone; with GRPO_DEBUG=1 the traceback."""
        if os.environ.get("GRPO_DEBUG"):
            return "".join(traceback.format_exception(self)).splitlines()
        return [f"{type(self).__name__}: {self}"]


class UserError(GrpoError, ValueError):
    """Something the user gave is not allowed: what was given, what is allowed, what to do."""

    exit_code = ExitCode.USER_MISTAKE


class UnknownNameError(UserError, LookupError):
    """A name that does not exist; the message lists what does and the near match."""


class PluginError(UserError):
    """A plugin that is broken, duplicated or misspelt, and whose task was asked for."""


class EmptyPromptError(UserError):
    """A prompt has no tokens, so that a completion has nothing to follow."""


class DataError(UserError):
    """A dataset that is missing, empty, or has a row that fails its schema: file, line, field."""


class DamagedFileWarning(UserWarning):
    """A part of a run's or a sweep's files cannot be read and is left out; the message names it."""


class RowError(DataError):
    """A row that is there and cannot be used: malformed, of another class, with the id of another one."""


class ExhaustedError(DataError):
    """A generator has fewer distinct rows than were asked for.

    Args:
        message: What was asked for, and how many there are.

    Attributes:
        available: How many there are.
    """

    def __init__(self, message: str, available: int = 0) -> None:
        super().__init__(message, available)
        self.available = available

    def __str__(self) -> str:
        return str(self.args[0])


class InfrastructureError(GrpoError, RuntimeError):
    """The machinery around a score failed; never a statement about a completion."""


class LostContactError(InfrastructureError):
    """Another process of the run has ended, or has not answered for `trainer.ddp_timeout` seconds."""


class EngineError(InfrastructureError):
    """The engine that samples the completions has failed; never a statement about a completion.

    Attributes:
        status: HTTP status with which a server refused a request.
    """

    status: int | None = None


class UnscoredError(GrpoError, RuntimeError):
    """A completion could not be scored, told to a trainer that takes no other sign of it; never a score."""


class AbstentionLimitError(GrpoError, RuntimeError):
    """More than the allowed share of a task's completions could not be scored."""

    exit_code = ExitCode.ABSTENTION_LIMIT


class NonFiniteError(GrpoError, ArithmeticError):
    """A model or an optimizer step produced NaN or infinity where a number is needed."""


def first_line(error: BaseException) -> str:
    """First line of an error's message, shortened; the name of its class where it has none.

    Args:
        error: The error.
    """
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0][:MAX_LINE_CHARS]


def near_match(name: str, choices: Iterable[str]) -> str:
    """Return ` Did you mean 'x'?` for the closest of `choices`, or an empty string.

    Args:
        name: Name that does not exist.
        choices: Names that do.
    """
    by_case = {choice.casefold(): choice for choice in choices}
    close = difflib.get_close_matches(name.casefold(), by_case, n=1, cutoff=0.6)
    return f" Did you mean {by_case[close[0]]!r}?" if close else ""


_MAX_LISTED = 40
"""Names in a message; of more, nobody finds one by reading."""


def unknown_name(kind: str, name: str, choices: Iterable[str]) -> UnknownNameError:
    """Build the error for an unknown `name` of a `kind`: the near match, then the names that exist, not all of many.

    Args:
        kind: What it would be the name of, such as `task`.
        name: Name that does not exist.
        choices: Names that do.
    """
    choices = sorted(choices)
    listed = ", ".join(choices[:_MAX_LISTED]) if choices else "(none)"
    if len(choices) > _MAX_LISTED:
        listed += f" and {len(choices) - _MAX_LISTED} more"
    return UnknownNameError(f"no {kind} {name!r:.{MAX_NAME_CHARS}}.{near_match(name, choices)} Available: {listed}")


class CheckpointError(UserError):
    """A checkpoint or a run's folder that is missing, damaged, of a newer version, or cannot be written."""


class CheckpointWriteError(CheckpointError):
    """A checkpoint that the machine would not take: a full disk, a folder that cannot be written. The run failed."""

    exit_code = ExitCode.FAILED
