"""Control groups (version 2) around servers, where this process may make them: a second wall for what a program uses.

The limits of a process do not cover the memory that the kernel holds for it, nor how many processors its threads use at
once; at level L1, nor what several processes have together. A group does.

A group that has processes of its own cannot divide its resources among groups beneath it. So groups are made where that
is arranged already, or else where nothing but this process and its children are: they then move into a group beneath.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from pathlib import Path

from grpo_tasks_code.sandbox.host.scheduling import parents

CONTROLLERS = ("memory", "pids", "cpu")
LEADER = "grpo-leader"
"""The group that this process moves into."""
_PREFIX = "grpo-sandbox"
_MOVES = 10
"""Tried in turn: a process may start another meanwhile."""
_CLEAN_UP_S = 2.0
"""For the kernel to take the last process out of a group."""

SERVER_BYTES = 256 << 20
"""Beside a program's own memory: its server, its files, and what the kernel holds for it."""
LIMITS = {"pids.max": "600", "cpu.max": "100000 100000", "memory.swap.max": "0"}
"""Of a server with its program: L2's bound on threads can be passed twofold, and one processor is what time is limited
by; so many microseconds of so many."""

HINT = "systemd-run --user --scope -p Delegate=yes grpo … gives it one"

_numbers = itertools.count()


class NoCgroupError(Exception):
    """No group can be made here; the message says why."""


class Cgroup:
    """A group for one server.

    Attributes:
        path: Its folder.

    Raises:
        NoCgroupError: none can be made.
    """

    def __init__(self) -> None:
        try:
            self.path = _base() / f"{_PREFIX}-{os.getpid()}-{next(_numbers)}"
            self.path.mkdir()
        except OSError as error:
            raise NoCgroupError(str(error)) from None
        try:
            for name, value in LIMITS.items():
                with contextlib.suppress(FileNotFoundError):  # a kernel without swap
                    _write(self.path / name, value)
        except OSError as error:
            self.close()
            raise NoCgroupError(str(error)) from None
        self._memory_bytes = 0

    def limit_memory(self, memory_bytes: int) -> None:
        """Let the next program have so much."""
        if memory_bytes != self._memory_bytes:
            with contextlib.suppress(OSError):  # the limits of the process hold in any case
                _write(self.path / "memory.max", str(memory_bytes + SERVER_BYTES))
            self._memory_bytes = memory_bytes

    def close(self) -> None:
        """Remove it, when its processes have ended."""
        end = time.monotonic() + _CLEAN_UP_S
        while time.monotonic() < end:
            try:
                self.path.rmdir()
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.01)
            else:
                return


def description() -> str:
    """Whether groups are used, in a line."""
    try:
        Cgroup().close()
    except NoCgroupError as error:
        return f"no control groups of its own ({error}); the limits of each process hold"
    return f"control groups (version 2) limit {', '.join(CONTROLLERS)} of each program"


def _base() -> Path:
    """The group to make others in.

    Raises:
        NoCgroupError: there is none.
        OSError: the kernel refuses.
    """
    own = _own()
    base = own.parent if own.name == LEADER else own
    if not _divides(base):
        offered = (base / "cgroup.controllers").read_text(encoding="ascii").split()
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
    """Move all processes of a group into one beneath, if they are this one and its children.

    Raises:
        NoCgroupError: there are others.
        OSError: the kernel refuses.
    """
    leader = base / LEADER
    for _ in range(_MOVES):
        members = _members(base)
        if not members <= _family():
            raise NoCgroupError(f"{base} has other processes too; {HINT}")
        if not members:
            return
        leader.mkdir(exist_ok=True)
        for member in members:
            with contextlib.suppress(ProcessLookupError):
                _write(leader / "cgroup.procs", str(member))


def _own() -> Path:
    """The group of this process.

    Raises:
        NoCgroupError: there is no version 2 here.
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


def _divides(group: Path) -> bool:
    divided = (group / "cgroup.subtree_control").read_text(encoding="ascii").split()
    return set(CONTROLLERS) <= set(divided)


def _members(group: Path) -> set[int]:
    return set(map(int, (group / "cgroup.procs").read_text(encoding="ascii").split()))


def _family() -> set[int]:
    """This process and all that descend from it."""
    parent_of = dict(parents())
    family, size = {os.getpid()}, 0
    while len(family) > size:
        size = len(family)
        family |= {child for child, parent in parent_of.items() if parent in family}
    return family


def _write(path: Path, value: str) -> None:
    # No "w": these files are there, and what is not must not be made.
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, value.encode("ascii"))
    finally:
        os.close(fd)
