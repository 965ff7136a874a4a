"""Namespaces: processes, files and network apart from the host's, with nothing but Python's standard library.

    caller --exec--> launcher (the host's namespaces) --clone--> server (process 1 of its own) --fork--> programs

The launcher is needed to write the map of users, and passes on the server's exit status. When the server dies, the
kernel kills everything in its process namespace.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Sequence
from pathlib import Path

from grpo_tasks_code.sandbox.inside import kernel, users
from grpo_tasks_code.sandbox.inside.landlock import NOT_PART_OF_PYTHON
from grpo_tasks_code.sandbox.inside.syscalls import Machine

INSIDE_UID = 1000
"""User id that programs see as their own."""

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
BOX = "/tmp"
"""Folder in which a program starts, the only one that it can write to."""
_BOX_OPTIONS = "size=16m,nr_inodes=1024,mode=1777"
"""Enough for the files of honest programs; files count as memory."""
_BOX_FLAGS = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC | kernel.MS_NOATIME
_READ_ONLY = kernel.MS_RDONLY | kernel.MS_NOSUID | kernel.MS_NODEV

_NEW = (
    kernel.CLONE_NEWUSER
    | kernel.CLONE_NEWPID
    | kernel.CLONE_NEWNS
    | kernel.CLONE_NEWNET
    | kernel.CLONE_NEWIPC
    | kernel.CLONE_NEWUTS
    | kernel.CLONE_NEWCGROUP
)


_KEPT_FLAGS = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
"""Flags that cannot be removed from a mount of a more privileged user; statvfs uses the same numbers."""
_MAX_OWN_FD = 64
"""The launcher was started with four descriptors."""
_ROOT = "/proc"
"""Temporary mount point of the new root: it exists, and nothing beneath it is needed."""


def enter(machine: Machine) -> bool:
    """Continue in a child that is process 1 of new namespaces, with all capabilities there; the caller waits and exits.

    Returns:
        Whether programs must still change their user, because the server is the host's root.

    Raises:
        OSError: the kernel or a security module refuses.
    """
    uid, gid = os.getuid(), os.getgid()
    is_root = uid == 0 and users.exists(users.NOBODY)
    read_end, write_end = os.pipe()
    try:
        pid = kernel.clone(_NEW | signal.SIGCHLD, machine)
    except OSError as error:
        if error.errno == errno.ENOSPC:  # the kernel's error for too many namespaces
            raise OSError(error.errno, "no more namespaces are allowed (sysctl user.max_user_namespaces)") from None
        raise
    if pid:
        os.close(read_end)
        try:
            _map_users(pid, uid, gid, is_root=is_root)
            os.write(write_end, b"m")
        except OSError:
            os.close(write_end)  # the child reads the end of the pipe and exits
            os.waitpid(pid, 0)
            raise
        _wait_as_launcher(pid)
    os.close(write_end)
    if not os.read(read_end, 1):
        os._exit(1)
    os.close(read_end)
    if is_root:
        os.setgroups([])
    kernel.prctl(kernel.PR_SET_PDEATHSIG, int(signal.SIGKILL), "parent-death signal")
    return is_root


def _map_users(pid: int, uid: int, gid: int, *, is_root: bool) -> None:
    process = Path(f"/proc/{pid}")
    if is_root:
        for name in ("uid_map", "gid_map"):
            (process / name).write_text(f"0 0 1\n{INSIDE_UID} {users.NOBODY} 1\n", encoding="ascii")
    else:
        (process / "setgroups").write_text("deny", encoding="ascii")
        (process / "uid_map").write_text(f"{INSIDE_UID} {uid} 1\n", encoding="ascii")
        (process / "gid_map").write_text(f"{INSIDE_UID} {gid} 1\n", encoding="ascii")


def _wait_as_launcher(pid: int) -> None:
    """Close all descriptors, wait for the server, and exit with its status."""
    os.closerange(0, _MAX_OWN_FD)
    _, status = os.waitpid(pid, 0)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def build_root(library: Sequence[str], machine: Machine) -> None:
    """Replace the file system by one with these folders, read-only, and a few devices.

    Raises:
        OSError: the kernel refuses.
    """
    kernel.sethostname(b"sandbox")
    kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("tmpfs", _ROOT, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "size=1m,mode=755")
    for folder in library:
        if os.path.isdir(folder):
            bind(_ROOT, folder, _READ_ONLY)
            for name in NOT_PART_OF_PYTHON.intersection(os.listdir(folder)):
                kernel.mount("tmpfs", _ROOT + os.path.join(folder, name), "tmpfs", _READ_ONLY, "size=4k,mode=755")
    for device in DEVICES:
        if os.path.exists(device):
            bind(_ROOT, device, kernel.MS_RDONLY | kernel.MS_NOSUID | kernel.MS_NOEXEC)
    os.makedirs(_ROOT + BOX)
    os.chdir(_ROOT)
    kernel.pivot_root_here(machine)
    kernel.mount(None, "/", None, kernel.MS_REMOUNT | kernel.MS_BIND | _READ_ONLY)


def bind(root: str, path: str, flags: int) -> None:
    """Make a file or folder of the host visible at its own path in a new root.

    Raises:
        OSError: the kernel refuses.
    """
    target = root + path
    if os.path.isdir(path):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC))
    kernel.mount(path, target, None, kernel.MS_BIND | kernel.MS_REC)
    kept = os.statvfs(path).f_flag & _KEPT_FLAGS
    kernel.mount(None, target, None, kernel.MS_REMOUNT | kernel.MS_BIND | flags | kept)


class Box:
    """The writable folder, mounted anew after a program that wrote to it.

    Raises:
        OSError: the kernel refuses.
    """

    path = BOX

    def __init__(self) -> None:
        self._mount()

    def renew(self) -> bool:
        """Remove what the last program left; return whether there was anything. All its processes must have ended."""
        if self._state() == self._fresh:
            return False
        kernel.unmount(BOX)
        self._mount()
        return True

    def _mount(self) -> None:
        kernel.mount("tmpfs", BOX, "tmpfs", _BOX_FLAGS, _BOX_OPTIONS)
        self._fresh = self._state()

    def _state(self) -> tuple[int, ...]:
        # The change time advances when an entry is created, removed or renamed, and cannot be set.
        folder, space = os.stat(BOX), os.statvfs(BOX)
        return (folder.st_mode, folder.st_ctime_ns, folder.st_mtime_ns, folder.st_nlink, space.f_bfree, space.f_ffree)
