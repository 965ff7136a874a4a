"""Options and values that several commands share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import IO, Any, Literal

import click

from grpo_sdk.errors import UserError
from grpo_sdk.paths import kind_of, user_path

HELP = {"help_option_names": ["-h", "--help"]}
"""Context settings of every command."""

JSON = click.option("--json", "as_json", is_flag=True, help="Print as JSON.")

COUNT = click.IntRange(1, 10**9)

SEED = click.IntRange(0, 2**63 - 1)

MAX_STEP_DIGITS = 18
"""Longest number of a step: int() refuses thousands of digits, and no run has 10^18 steps."""


class _Number(click.FloatRange):
    """A range that excludes NaN."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value} is no number in the range {self._describe_range()}.", param, ctx)
        return number


RATE = _Number(0, 10, min_open=True)
"""Learning rate."""

SHARE = _Number(0, 1)
"""Share of a whole."""

SECONDS = _Number(0, 10**7, min_open=True)
"""Time limit, up to months."""


def only_one(options: Mapping[str, object]) -> str:
    """Return which of some options is given, empty if none is.

    Args:
        options: Option -> its value.

    Raises:
        UserError: several are given.
    """
    given = [option for option, value in options.items() if value not in (None, False)]
    if len(given) > 1:
        raise UserError(f"{' and '.join(given)} exclude one another: give one of them.")
    return "".join(given)


def read_number(text: str) -> int | None:
    """Read the number of a step; None if the text is not one."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= MAX_STEP_DIGITS else None


def read_checkpoint(text: str, option: str) -> int | Literal["latest", "final"]:
    """Read which checkpoint an option names.

    Raises:
        UserError: neither `latest`, `final` nor a number.
    """
    words: dict[str, Literal["latest", "final"]] = {"latest": "latest", "final": "final"}
    step = words[text] if text in words else read_number(text)
    if step is None:
        raise UserError(f"{option} {text[:40]!r}: give latest, final or the number of a step.")
    return step


def open_input(given: str, option: str, hint: str) -> IO[bytes]:
    """Open the file that an option names.

    Args:
        given: Its path, as it was written.
        option: The option with its value, for messages.
        hint: What to do where there is no such file.

    Raises:
        UserError: there is none, or it cannot be read.
    """
    path = user_path(given, option.partition(" ")[0])
    if (kind := kind_of(path)) not in ("a file", "a pipe"):
        raise UserError(f"{option}: {kind or 'no such file'}. {hint}")
    try:
        return path.open("rb")
    except OSError as error:
        raise UserError(f"{option}: cannot be read: {error.strerror or error}.") from None
