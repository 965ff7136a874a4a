"""Landlock: which files a program may open, and no network, signals or abstract sockets beyond its own."""

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
"""Where the descriptors of a program are not put."""

NOT_PART_OF_PYTHON = frozenset({"site-packages", "dist-packages"})
"""Folders within the standard library that hold what was installed: data sets and graders perhaps."""


def abi(machine: Machine) -> int:
    """The version that the kernel has.

    Raises:
        OSError: it has none, or it is turned off.
    """
    call = required("landlock_create_ruleset", machine)
    return kernel.syscall(call, None, 0, _CREATE_RULESET_VERSION, what="Landlock")


class Ruleset:
    """Nothing may be opened but what is allowed; a descriptor that children inherit.

    Args:
        machine: The architecture.

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
        """Let files be read, and folders with all beneath. What does not exist is passed over."""
        for path in paths:
            self._allow(path, _READ_FILE | _READ_DIR)

    def allow_device(self, path: str) -> None:
        """Let one device be read and written."""
        self._allow(path, _READ_FILE | _WRITE_FILE)

    def allow_own(self, path: str) -> None:
        """Let everything be done beneath a folder but running files and making devices, sockets and FIFOs."""
        self._allow(path, self._rights & ~(_EXECUTE | _MAKE_CHAR | _MAKE_SOCK | _MAKE_FIFO | _MAKE_BLOCK | _IOCTL_DEV))

    def _allow(self, path: str, rights: int) -> None:
        try:
            parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:  # it does not exist, or is closed to us: there is nothing to allow
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
        """Restrict this process, for good. Needs no_new_privs.

        Raises:
            OSError: the kernel refuses.
        """
        call = required("landlock_restrict_self", self._machine)
        kernel.syscall(call, self.fd, 0, what="enforce the Landlock ruleset")

    def close(self) -> None:
        """Forget it."""
        os.close(self.fd)


def entries_of_python(library: Iterable[str]) -> Iterator[str]:
    """What the folders of the standard library hold, apart from what was installed beside it."""
    for folder in library:
        if os.path.isdir(folder):
            yield from (entry.path for entry in os.scandir(folder) if entry.name not in NOT_PART_OF_PYTHON)
        else:
            yield folder
