"""Control groups (version 2) around servers, where this process may create them: a second limit on resources.

The limits of a process cover neither the memory that the kernel holds for it nor how many processors its threads use at
once; at level L1, nor what several processes use together. A control group covers all of these.

A group that has processes of its own cannot divide its resources among child groups. So groups are created where
resources are divided already, or else where only this process and its children are: those then move to a child group.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from pathlib import Path

CONTROLLERS = ("memory", "pids", "cpu")
LEADER = "grpo-leader"
"""Name of the group that this process moves to."""
_PREFIX = "grpo-sandbox"
_MOVES = 10
"""Attempts to move all processes, since one may start another meanwhile."""
_CLEAN_UP_S = 2.0
"""Time for the kernel to remove the last process from a group."""

SERVER_BYTES = 256 << 20
"""Memory beside the program's own: its server, its files, and what the kernel holds for it."""
LIMITS = {"pids.max": "600", "cpu.max": "100000 100000", "memory.swap.max": "0"}
"""Limits of a server with its program. L2's bound on threads can be exceeded twofold; `cpu.max` is one processor, as
microseconds of a period."""

HINT = "systemd-run --user --scope -p Delegate=yes grpo … gives it one"

_numbers = itertools.count()


class NoCgroupError(OSError):
    """The system has no control groups of which some could be ours; the message says why."""


class Cgroup:
    """Control group of one server.

    Attributes:
        path: Folder of the group.

    Raises:
        OSError: no group can be created; the message says why.
    """

    def __init__(self) -> None:
        self.path = _base() / f"{_PREFIX}-{os.getpid()}-{next(_numbers)}"
        self.path.mkdir()
        try:
            for name, value in LIMITS.items():
                with contextlib.suppress(FileNotFoundError):  # a kernel without swap
                    _write(self.path / name, value)
        except OSError:
            self.close()
            raise
        self._memory_bytes = 0

    def limit_memory(self, memory_bytes: int) -> None:
        """Set the memory limit of the next program."""
        if memory_bytes != self._memory_bytes:
            with contextlib.suppress(OSError):  # the limits of the process hold in any case
                _write(self.path / "memory.max", str(memory_bytes + SERVER_BYTES))
            self._memory_bytes = memory_bytes

    def close(self) -> None:
        """Remove the group, when its processes have ended."""
        end = time.monotonic() + _CLEAN_UP_S
        while self.path.exists() and time.monotonic() < end:
            try:
                self.path.rmdir()
            except OSError:
                time.sleep(0.01)


def cgroup_if_possible() -> Cgroup | None:
    """Create a group; None where none can be created, of which `description` says why."""
    try:
        return Cgroup()
    except OSError:
        return None


def description() -> str:
    """Say in a line whether control groups are used."""
    try:
        Cgroup().close()
    except OSError as error:
        return f"no control groups of its own ({error}); the limits of each process hold"
    return f"control groups (version 2) limit {', '.join(CONTROLLERS)} of each program"


def _base() -> Path:
    """Return the group in which to create others.

    Raises:
        NoCgroupError: there is no such group.
        OSError: the kernel refuses.
    """
    own = _own()
    base = own.parent if own.name == LEADER else own
    if not set(CONTROLLERS) <= set(_words(base / "cgroup.subtree_control")):
        offered = _words(base / "cgroup.controllers")
        if not set(CONTROLLERS) <= set(offered):
            raise NoCgroupError(f"{base} has {', '.join(offered) or 'no controllers'}, not {', '.join(CONTROLLERS)}")
        _move_out(base)
        _write(base / "cgroup.subtree_control", " ".join(f"+{name}" for name in CONTROLLERS))
    for left in base.glob(f"{_PREFIX}-*"):  # of processes that were killed
        if not Path("/proc", left.name.split("-")[2]).exists():
            with contextlib.suppress(OSError):
                left.rmdir()
    return base


def _move_out(base: Path) -> None:
    """Move all processes of a group to a child group, if they are this process and its children.

    Raises:
        NoCgroupError: the group has other processes.
        OSError: the kernel refuses.
    """
    import psutil  # here and in `scheduling`: few processes need what takes 10 ms

    leader = base / LEADER
    for _ in range(_MOVES):
        members = set(map(int, _words(base / "cgroup.procs")))
        if not members <= {os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))}:
            raise NoCgroupError(f"{base} has other processes too; {HINT}")
        if not members:
            return
        leader.mkdir(exist_ok=True)
        for member in members:
            with contextlib.suppress(ProcessLookupError):
                _write(leader / "cgroup.procs", str(member))


def _own() -> Path:
    """Return the group of this process.

    Raises:
        NoCgroupError: version 2 is not available.
    """
    try:
        memberships = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
        mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()]
    except OSError:
        raise NoCgroupError("the system has none") from None
    path = next((line[3:] for line in memberships if line.startswith("0::")), None)
    for mount in mounts:
        if mount[mount.index("-") + 1] == "cgroup2" and path is not None:
            root, folder = mount[3], mount[4]
            return Path(folder) / os.path.relpath(path, root)
    raise NoCgroupError("version 2 is not mounted")


def _words(path: Path) -> list[str]:
    return path.read_text(encoding="ascii").split()


def _write(path: Path, value: str) -> None:
    with path.open("r+b", buffering=0) as file:  # not "w": these files exist, and a missing one must not be created
        file.write(value.encode("ascii"))
