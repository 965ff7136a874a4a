"""System calls for which Python has no function."""

from __future__ import annotations

import ctypes
import os

from grpo_tasks_code.sandbox.inside.syscalls import Machine, required
from grpo_tasks_code.sandbox.inside.users import change_to

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long

PR_SET_PDEATHSIG, PR_SET_KEEPCAPS, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 8, 22, 38  # <linux/prctl.h>
SECCOMP_MODE_FILTER = 2

CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x2000000, 0x4000000, 0x8000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_NOATIME, MS_BIND, MS_REC, MS_PRIVATE = 1 << 10, 1 << 12, 1 << 14, 1 << 18
MNT_DETACH = 2

_CAP_SETUID = 7
_CAPABILITY_HEADER = (0x20080522).to_bytes(4, "little") + bytes(4)  # _LINUX_CAPABILITY_VERSION_3, this thread


def check(result: int, what: str) -> int:
    """Return the result of a C function.

    Raises:
        OSError: it is negative; the message says what failed.
    """
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def syscall(number: int, *arguments: int | bytes | None, what: str) -> int:
    """Call the kernel by number.

    Raises:
        OSError: it refuses.
    """
    converted = [ctypes.c_ulong(argument) if isinstance(argument, int) else argument for argument in arguments]
    return check(_libc.syscall(ctypes.c_long(number), *converted), what)


def prctl(option: int, argument: int, what: str, pointer: object = 0) -> None:
    """Change an attribute of this process.

    Raises:
        OSError: the kernel refuses.
    """
    zero = ctypes.c_ulong(0)
    check(_libc.prctl(option, ctypes.c_ulong(argument), pointer or zero, zero, zero), what)


def die_with_parent(parent: int, signal_number: int) -> None:
    """Have the kernel kill this process when its parent dies; the parent is the thread that started it."""
    prctl(PR_SET_PDEATHSIG, signal_number, "parent-death signal")
    if os.getppid() != parent:  # it died before the call
        os._exit(0)


def mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    """Mount a file system.

    Raises:
        OSError: the kernel refuses.
    """
    strings = [None if string is None else os.fsencode(string) for string in (source, target, kind, options)]
    result = _libc.mount(strings[0], strings[1], strings[2], ctypes.c_ulong(flags), strings[3])
    check(result, f"mount {kind or source or ''} on {target}")


def unmount(target: str) -> None:
    """Unmount a file system, even while it is in use.

    Raises:
        OSError: the kernel refuses.
    """
    check(_libc.umount2(os.fsencode(target), MNT_DETACH), f"unmount {target}")


def pivot_root_here(machine: Machine) -> None:
    """Make the current folder the root, and release the old one (pivot_root(2), "pivot_root(".", ".")").

    Raises:
        OSError: the kernel refuses.
    """
    syscall(required("pivot_root", machine), b".", b".", what="pivot_root")
    check(_libc.umount2(b".", MNT_DETACH), "unmount the old root")
    os.chdir("/")


def sethostname(name: bytes) -> None:
    """Set the host name.

    Raises:
        OSError: the kernel refuses.
    """
    check(_libc.sethostname(name, ctypes.c_size_t(len(name))), "sethostname")


def set_capabilities(mask: int, machine: Machine) -> None:
    """Set the effective and permitted capabilities.

    Raises:
        OSError: the kernel refuses.
    """
    low = mask.to_bytes(4, "little")
    syscall(required("capset", machine), _CAPABILITY_HEADER, low + low + bytes(16), what="capset")


def become(uid: int, files_as: int, machine: Machine) -> None:
    """Change from root to a user, and open files as another.

    Raises:
        OSError: the kernel refuses.
    """
    if files_as == uid:
        change_to(uid)
        return
    prctl(PR_SET_KEEPCAPS, 1, "keep capabilities")
    change_to(uid)
    set_capabilities(1 << _CAP_SETUID, machine)
    _libc.setfsuid(files_as)
    prctl(PR_SET_KEEPCAPS, 0, "drop capabilities")


def clone(flags: int, machine: Machine) -> int:
    """Fork with flags; return 0 in the child.

    Raises:
        OSError: the kernel refuses.
    """
    # As in os.fork, the interpreter has to update locks and thread identity on both sides.
    ctypes.pythonapi.PyOS_BeforeFork()
    pid = _libc.syscall(ctypes.c_long(required("clone", machine)), ctypes.c_ulong(flags), None, None, None, None)
    code = ctypes.get_errno()
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
        return 0
    ctypes.pythonapi.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError(code, f"clone: {os.strerror(code)}")
    return int(pid)
