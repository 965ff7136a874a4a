from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterable

# Keeps the last line it read; at end of file the pool's process is gone, however it died.
_SCRIPT = 'while read -r line; do groups=$line; done; for group in $groups; do kill -s KILL -- "-$group"; done'


class Guard:
    """A tiny shell that kills the workers' process groups when this process dies, where workers have no keeper.

    An end-of-file reaches only a worker that is reading: a busy worker, and what a worker started in its own group,
    would outlive a trainer killed by SIGKILL. Where there is no /bin/sh, the end-of-file is all there is.
    """

    def __init__(self) -> None:
        read_end, self._write_end = os.pipe()
        try:
            self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
                ["/bin/sh", "-c", _SCRIPT],
                stdin=read_end,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the trainer
            )
        except OSError:
            self._process = None
        finally:
            os.close(read_end)

    def watch(self, groups: Iterable[int]) -> None:
        """Replace the groups to kill. One that is being killed leaves the list before its number can be used again."""
        with contextlib.suppress(OSError):  # somebody killed the guard: the other two remain
            os.write(self._write_end, (" ".join(map(str, groups)) + "\n").encode())

    def close(self) -> None:
        """Dismiss the guard."""
        self.watch(())  # at end of file it kills the groups of the last line: none
        os.close(self._write_end)
        if self._process is not None:
            self._process.wait()

    def abandon(self) -> None:
        """Forget it in a forked child: it is the parent's."""
        os.close(self._write_end)
        if self._process is not None:
            self._process.returncode = 0  # not our child: nothing to wait for
