"""Names of checkpoint folders, and the hidden names beside them while one is written or deleted."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from grpo_sdk.errors import CheckpointError

Step = int | Literal["final"]

_CHECKPOINT = re.compile(r"step_(?:(0|[1-9][0-9]{0,17})|final)")
_HIDDEN = re.compile(r"\.([A-Za-z0-9_.-]{1,200})\.(partial|replaced|deleted)-([0-9]{1,9})(?:-[0-9a-f]{8})?")


class Hidden(NamedTuple):
    """The parts of a hidden name.

    Attributes:
        target: The visible name that it belongs to.
        purpose: Its purpose.
        pid: Id of the process that made it.
    """

    target: str
    purpose: str
    pid: int


def checkpoint_name(step: Step) -> str:
    """Return the name of a step's folder.

    Raises:
        CheckpointError: there can be no such step.
    """
    name = f"step_{step}"
    if not _CHECKPOINT.fullmatch(name):
        raise CheckpointError(f"no checkpoint is called {step!r}: give a step (0 or more) or 'final'.")
    return name


def parse_checkpoint(name: str) -> Step | None:
    """Return the step whose folder has this name, or None."""
    if match := _CHECKPOINT.fullmatch(name):
        return int(match[1]) if match[1] else "final"
    return None


def parse_hidden(name: str) -> Hidden | None:
    """Take a hidden name apart; None if it is not one of ours."""
    match = _HIDDEN.fullmatch(name)
    return Hidden(match[1], match[2], int(match[3])) if match else None
