"""A command that ends when its parent does, with everything that it has started: `python -m` this module."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from grpo_sdk.killable.worker import keep


def kept(command: Sequence[str], grace_s: float = 0.0) -> list[str]:
    """The command line that runs a command so that it does not outlive this process.

    A terminated child takes everything with it that the command started, detached processes included. Linux only;
    elsewhere the command is run as it is.

    Args:
        command: Program and arguments.
        grace_s: Seconds that it has to end by itself; see `keep`.
    """
    return [sys.executable, "-m", __name__, str(os.getpid()), str(grace_s), *command]


if __name__ == "__main__":
    keep(int(sys.argv[1]), float(sys.argv[2]))
    os.execvp(sys.argv[3], sys.argv[3:])
