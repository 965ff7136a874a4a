"""Confinement of programs: prepared once by the server, applied by each child before the program's first line.

A child does only what cannot be done before the fork: each object that it touches causes a memory page to be copied.
"""

from __future__ import annotations

import os
import platform
import resource
import shutil
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from grpo_tasks_code.sandbox.inside import users
from grpo_tasks_code.sandbox.inside.wire import Request


class Folder:
    """A writable folder for level L1, emptied after each program.

    Args:
        path: Existing folder; its creator removes it.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def renew(self) -> bool:
        """Remove what the last program left; return whether there was anything."""
        entries = list(os.scandir(self.path))
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                os.unlink(entry.path)
        return bool(entries)


if sys.platform == "linux":  # elsewhere there is level L1
    from grpo_tasks_code.sandbox.inside import kernel, namespaces, syscalls
    from grpo_tasks_code.sandbox.inside.landlock import Ruleset, entries_of_python
    from grpo_tasks_code.sandbox.inside.seccomp import Filter
    from grpo_tasks_code.sandbox.inside.threads import MAX_THREADS, ThreadBound

LevelName = Literal["L3", "L2", "L1"]

MAX_OPEN_FILES = 256
MAX_FILE_BYTES = 16 << 20
"""Size limit of one file that a program writes."""
MAX_STACK_BYTES = 8 << 20
"""Linux's usual limit: recursion in C ends as it does elsewhere."""
CPU_GRACE_S = 1
"""Seconds between SIGXCPU, which a program can ignore, and SIGKILL."""
_SIGKILL = int(signal.SIGKILL)


@dataclass(slots=True)
class Confinement:
    """Parts of one isolation level.

    Attributes:
        machine: Architecture; None at L1, which makes no system calls by number.
        loaded_bytes: Address space of the server itself.
        has_own_tasks: Whether the user has no other tasks, so that a limit of tasks applies to the program alone.
        uid: User to change to, or None.
        files_as: User as which files are opened after the change.
        ruleset: Landlock rules of files.
        filter: Filter of system calls.
        box: Folder in which programs start and may write; None if there is none.
        threads: Limit of threads, where the user has other tasks too.
    """

    machine: syscalls.Machine | None = None
    loaded_bytes: int = 0
    has_own_tasks: bool = False
    uid: int | None = None
    files_as: int = 0
    ruleset: Ruleset | None = None
    filter: Filter | None = None
    box: namespaces.Box | Folder | None = None
    threads: ThreadBound | None = None

    def settle(self) -> None:
        """In the server: apply what its children inherit.

        Raises:
            OSError: the kernel refuses.
        """
        self._go_home()
        for which, limit in (
            (resource.RLIMIT_FSIZE, MAX_FILE_BYTES),
            (resource.RLIMIT_NOFILE, MAX_OPEN_FILES),
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_STACK, MAX_STACK_BYTES),
            (resource.RLIMIT_MEMLOCK, 0),
        ):
            self._set_limit(which, limit, limit)
        if sys.platform == "linux":
            self._set_limit(resource.RLIMIT_MSGQUEUE, 0, 0)
            kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1, "no_new_privs")
            if self.machine is not None and not self.has_own_tasks:
                self.threads = ThreadBound(self.machine)

    def put_on(self, request: Request, server: int) -> None:
        """In the child: apply everything but the system-call filter, which must come last.

        Raises:
            OSError: the kernel refuses.
        """
        self._set_limit(resource.RLIMIT_CPU, request.cpu_s, request.cpu_s + CPU_GRACE_S)
        if sys.platform == "linux":  # other systems accept this limit but do not enforce it
            memory = self.loaded_bytes + request.memory_bytes
            self._set_limit(resource.RLIMIT_AS, memory, memory)
        if self.has_own_tasks:
            self._set_limit(resource.RLIMIT_NPROC, MAX_THREADS, MAX_THREADS)
        if self.machine is not None:
            if self.uid is not None:
                kernel.become(self.uid, self.files_as, self.machine)
            kernel.set_capabilities(0, self.machine)
        if sys.platform == "linux":
            kernel.die_with_parent(server, _SIGKILL)  # a change of user takes this back, so after it
        if self.ruleset is not None:
            self.ruleset.enforce()

    def filter_calls(self) -> None:
        """In the child: install the system-call filter, if the level has one.

        Raises:
            OSError: the kernel refuses.
        """
        if self.filter is not None:
            self.filter.install(os.getpid())

    def clean(self) -> None:
        """In the server: remove what the last program left, when all its processes have ended.

        Raises:
            OSError: the kernel refuses.
        """
        if self.box is not None and self.box.renew():
            self._go_home()
            if self.ruleset is not None:
                self.ruleset.close()
            if self.machine is not None:
                self.ruleset = _rules_in_namespaces(self.machine)  # the old rules do not cover the new file system

    def _go_home(self) -> None:
        os.chdir("/" if self.box is None else self.box.path)

    def _set_limit(self, which: int, soft: int, hard: int) -> None:
        ceiling = resource.getrlimit(which)[1]  # the site may be stricter
        if ceiling != resource.RLIM_INFINITY:
            soft, hard = min(soft, ceiling), min(hard, ceiling)
        try:
            resource.setrlimit(which, (soft, hard))
        except (OSError, ValueError):
            if self.machine is not None:  # L1 applies what it can; macOS does not accept every limit
                raise


def prepare(level: LevelName, library: list[str], box: str) -> Confinement:
    """Prepare the parts of a level. At L3 only process 1 of new namespaces returns; the caller becomes its launcher.

    Args:
        level: Isolation level.
        library: Folders of Python's standard library.
        box: At L1, a folder that programs may write to.

    Raises:
        OSError: the system lacks what the level needs.
    """
    if level == "L1":
        return Confinement(loaded_bytes=_loaded_bytes(), box=Folder(box))
    machine = _machine()
    return _namespaced(machine, library) if level == "L3" else _landlocked(machine, library)


def _machine() -> syscalls.Machine:
    name = platform.machine()
    if sys.platform == "linux" and sys.maxsize > 1 << 32:
        if name == "x86_64":
            return "x86_64"
        if name == "aarch64":
            return "aarch64"
    raise OSError(f"the system-call filter is for 64-bit Linux on x86_64 and aarch64, not for {sys.platform} on {name}")


def _landlocked(machine: syscalls.Machine, library: list[str]) -> Confinement:
    ruleset = Ruleset(machine)
    ruleset.allow_reading(entries_of_python(library))
    for device in namespaces.DEVICES:
        ruleset.allow_device(device)
    parts = Confinement(machine, _loaded_bytes(), ruleset=ruleset, filter=Filter(machine, own_files=False))
    if os.getuid() == 0 and users.exists(users.NOBODY):
        parts.uid = users.NOBODY
        parts.files_as = users.NOBODY if users.can_read(users.NOBODY, library) else 0
    return parts


def _namespaced(machine: syscalls.Machine, library: list[str]) -> Confinement:
    changes_user = namespaces.enter(machine)
    loaded_bytes = _loaded_bytes()  # after the next line there is no /proc
    namespaces.build_root(library, machine)
    parts = Confinement(machine, loaded_bytes, has_own_tasks=True, filter=Filter(machine, own_files=True))
    parts.box = namespaces.Box()
    parts.ruleset = _rules_in_namespaces(machine)
    if changes_user:
        parts.uid = namespaces.INSIDE_UID
        parts.files_as = parts.uid if users.can_read(parts.uid, library) else 0
    return parts


def _rules_in_namespaces(machine: syscalls.Machine) -> Ruleset | None:
    """Return Landlock rules as a second barrier behind the namespaces, where the kernel has Landlock."""
    try:
        ruleset = Ruleset(machine)
    except OSError:
        return None
    ruleset.allow_reading(["/"])
    for device in namespaces.DEVICES:
        ruleset.allow_device(device)
    ruleset.allow_own(namespaces.BOX)
    return ruleset


def _loaded_bytes() -> int:
    """Return the address space of this process; 0 where the system does not report it."""
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[0]
    except FileNotFoundError:
        return 0
    return int(pages) * resource.getpagesize()
