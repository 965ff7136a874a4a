"""A program that becomes an engine which ends with its parent: `python launch.py PARENT_PID ENGINE`.

It is a separate program, because code between fork and exec may hang in a process with threads. It is started by its
path and imports only the standard library.
"""

from __future__ import annotations

import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
CANNOT_EXECUTE = 126
"""Exit status for a file that this machine cannot execute, as in a shell."""


def main() -> None:
    """Replace this process by the engine; outside Linux, the engine ends only at the end of its input."""
    parent, engine = int(sys.argv[1]), sys.argv[2]
    if sys.platform.startswith("linux"):
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent:  # the parent died before the call
            return
    try:
        os.execv(engine, [engine])
    except OSError:
        sys.exit(CANNOT_EXECUTE)


if __name__ == "__main__":
    main()
