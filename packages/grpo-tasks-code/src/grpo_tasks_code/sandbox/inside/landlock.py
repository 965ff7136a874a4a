"""Landlock: restricts which files a program may open, and network, signals and abstract sockets."""

from __future__ import annotations

import fcntl
import os
import stat
import struct
from collections.abc import Iterable, Iterator

from grpo_tasks_code.sandbox.inside import kernel
from grpo_tasks_code.sandbox.inside.syscalls import Machine, required

# LANDLOCK_ACCESS_FS_… of <linux/landlock.h>
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHAR, _MAKE_SOCK, _MAKE_FIFO, _MAKE_BLOCK = 1 << 6, 1 << 9, 1 << 10, 1 << 11
_IOCTL_DEV = 1 << 15
_RIGHTS_OF_ABI = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
"""File rights that exist from an ABI version on: 2 adds REFER, 3 TRUNCATE, 5 IOCTL_DEV."""
_NETWORK_ABI, _NETWORK_RIGHTS = 4, 0b11  # bind and connect TCP
_SCOPE_ABI, _SCOPES = 6, 0b11  # abstract unix sockets, signals
_CREATE_RULESET_VERSION = 1
_RULE_PATH_BENEATH = 1

_HIGH_FD = 64
"""Lowest descriptor of a ruleset, above the descriptors of programs."""

NOT_PART_OF_PYTHON = frozenset({"site-packages", "dist-packages"})
"""Folders within the standard library that hold installed packages, which may include data sets and graders."""


def abi(machine: Machine) -> int:
    """Return the kernel's version of Landlock.

    Raises:
        OSError: the kernel has no Landlock, or it is disabled.
    """
    call = required("landlock_create_ruleset", machine)
    return kernel.syscall(call, None, 0, _CREATE_RULESET_VERSION, what="Landlock")


class Ruleset:
    """A set of rules that forbids everything but what is allowed; children inherit its descriptor.

    Args:
        machine: Architecture.

    Raises:
        OSError: the kernel has no Landlock.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        version = abi(machine)
        self._rights = next(
            rights for since, rights in sorted(_RIGHTS_OF_ABI.items(), reverse=True) if since <= version
        )
        attributes = struct.pack("=Q", self._rights)
        if version >= _NETWORK_ABI:
            attributes += struct.pack("=Q", _NETWORK_RIGHTS)
        if version >= _SCOPE_ABI:
            attributes += struct.pack("=Q", _SCOPES)
        create = required("landlock_create_ruleset", machine)
        low_fd = kernel.syscall(create, attributes, len(attributes), 0, what="create a Landlock ruleset")
        self.fd = fcntl.fcntl(low_fd, fcntl.F_DUPFD_CLOEXEC, _HIGH_FD)
        os.close(low_fd)

    def allow_reading(self, paths: Iterable[str]) -> None:
        """Allow reading files, and folders with their contents. Missing paths are skipped."""
        for path in paths:
            self._allow(path, _READ_FILE | _READ_DIR)

    def allow_device(self, path: str) -> None:
        """Allow reading and writing a device."""
        self._allow(path, _READ_FILE | _WRITE_FILE)

    def allow_own(self, path: str) -> None:
        """Allow everything in a folder but executing files and creating devices, sockets and FIFOs."""
        self._allow(path, self._rights & ~(_EXECUTE | _MAKE_CHAR | _MAKE_SOCK | _MAKE_FIFO | _MAKE_BLOCK | _IOCTL_DEV))

    def _allow(self, path: str, rights: int) -> None:
        try:
            parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:  # it does not exist or is not accessible: there is nothing to allow
            return
        try:
            if not stat.S_ISDIR(os.fstat(parent).st_mode):
                rights &= ~_READ_DIR
            rule = struct.pack("=Qi", rights & self._rights, parent)
            call = required("landlock_add_rule", self._machine)
            kernel.syscall(call, self.fd, _RULE_PATH_BENEATH, rule, 0, what=f"allow {path}")
        finally:
            os.close(parent)

    def enforce(self) -> None:
        """Restrict this process irrevocably. Needs no_new_privs.

        Raises:
            OSError: the kernel refuses.
        """
        call = required("landlock_restrict_self", self._machine)
        kernel.syscall(call, self.fd, 0, what="enforce the Landlock ruleset")

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self.fd)


def entries_of_python(library: Iterable[str]) -> Iterator[str]:
    """Yield the entries of the standard library's folders without installed packages."""
    for folder in library:
        if os.path.isdir(folder) and NOT_PART_OF_PYTHON.intersection(os.listdir(folder)):
            yield from (entry.path for entry in os.scandir(folder) if entry.name not in NOT_PART_OF_PYTHON)
        else:
            yield folder
