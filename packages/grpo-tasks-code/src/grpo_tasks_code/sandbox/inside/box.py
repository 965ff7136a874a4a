"""A box for shell commands: the host's tools, read-only, files of its own, and no network.

    caller --exec--> launcher --clone--> box (process 1 of new namespaces) --fork--> bash

The caller sends one order after another over a socket. A run ends with all that it started, so nothing of it is left
while files are added or another run goes on.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import resource
import selectors
import signal
import socket
import stat
import struct
import subprocess
import time
from pathlib import Path
from typing import Any, cast

from grpo_tasks_code.sandbox.inside import kernel, namespaces, seccomp, wire
from grpo_tasks_code.sandbox.inside.command_line import forget_command_line
from grpo_tasks_code.sandbox.inside.syscalls import Machine

MAX_OUTPUT_BYTES = 64 << 20
"""A command that writes more is ended."""
_CUT_S = 10.0
"""Time for looking through links that commands left."""
MAX_PROCESSES, MAX_OPEN_FILES = 256, 1024
MAX_NAMES = 10_000

_MOUNT_POINTS = ("/sys", "/mnt", "/srv", "/tmp")
"""Where the new root may be put together: a folder that exists, and beneath which nothing is needed. Not /proc, which
the kernel lets nobody mount anew while something hides its old one."""
_PLAIN = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOATIME
_PROC = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
"""Not MS_NOATIME too: the kernel mounts /proc only as an outer one is mounted."""
_READ_ONLY = kernel.MS_RDONLY | kernel.MS_NOSUID | kernel.MS_NODEV
_SHARED_ETC = ("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "mime.types", "ssl/certs")
"""What tools need of the host's /etc; none of it is about this machine's users or secrets."""
_SMALL_TMPFS = "size=64m,nr_inodes=8192,mode=755"
_OOM_FIRST = "1000"
_LOOPBACK_UP = struct.pack("16sH14x", b"lo", 0x1 | 0x40)  # struct ifreq: IFF_UP | IFF_RUNNING
_SIOCSIFFLAGS = 0x8914
_LOOK_S = 0.05
"""Longest pause between two looks at whether the main process has ended, while something else holds its output open."""


def main(control_fd: str, parent: str, cgroup: str) -> None:
    """Serve orders until the socket is closed.

    Args:
        control_fd: Descriptor of the socket.
        parent: Process id of the caller.
        cgroup: Folder of a control group to join; empty if there is none.
    """
    control = socket.socket(fileno=int(control_fd))
    control.set_inheritable(False)
    kernel.die_with_parent(int(parent), int(signal.SIGKILL))
    try:
        if cgroup:
            Path(cgroup, "cgroup.procs").write_text("0", encoding="ascii")
        box = Box(cast(Machine, platform.machine()))
    except OSError as error:
        wire.send(control, {"error": error.strerror or str(error)})
        return
    with contextlib.suppress(FileNotFoundError, PermissionError):  # there is no /proc
        forget_command_line()
    del parent, cgroup
    wire.send(control, {})
    with contextlib.suppress(ConnectionError):
        while (message := wire.receive(control)) is not None:
            order, data, _ = message
            try:
                reply, blob = getattr(box, f"do_{order.pop('do')}")(data=data, **order)
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                reply, blob = {"error": str(error)}, b""
            wire.send(control, reply, blob)


class Box:
    """Namespaces in which nothing runs yet; each `do_…` is an order of the caller."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._changes_user = namespaces.enter(machine)
        with contextlib.suppress(OSError), socket.socket() as any_socket:  # servers of a task's own, at localhost
            fcntl.ioctl(any_socket, _SIOCSIFFLAGS, _LOOPBACK_UP)
        self._filter = seccomp.Program(seccomp.assemble_for_shell(machine))

    def do_build(
        self, data: bytes, tools: list[str], writable: list[str], storage_bytes: int
    ) -> tuple[dict[str, Any], bytes]:
        """Replace the file system by the host's tools, and writable folders that share one limit of storage."""
        self._writable = writable
        root = next(point for point in _MOUNT_POINTS if os.path.isdir(point))
        kernel.sethostname(b"box")
        kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
        kernel.mount("tmpfs", root, "tmpfs", kernel.MS_NOSUID, "size=8m,mode=755")
        self._add_storage(root, writable, storage_bytes)  # first, since a tool may lie in a folder of this name
        for tool in tools:
            _show(root, tool)
        for name in _SHARED_ETC:
            _show(root, f"/etc/{name}")
        for name, content in _ETC.items():
            Path(root, "etc", name).write_text(content, encoding="ascii")
        for device in namespaces.DEVICES:
            _show(root, device)
        for name, target in (("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
            os.symlink(target, f"{root}/dev/{name}")
        os.mkdir(f"{root}/proc")
        has_proc = True
        try:
            kernel.mount("proc", f"{root}/proc", "proc", _PROC)
        except OSError:  # an outer container hides parts of its own
            has_proc = False
        for folder in ("logs/verifier", "run", "solution", "tests"):
            os.makedirs(f"{root}/{folder}", exist_ok=True)
        os.chdir(root)
        kernel.pivot_root_here(self._machine)
        kernel.mount(None, "/", None, kernel.MS_REMOUNT | kernel.MS_BIND | _READ_ONLY)
        return {"has_proc": has_proc}, b""

    def _add_storage(self, root: str, writable: list[str], storage_bytes: int) -> None:
        storage = f"{root}/.storage"
        os.mkdir(storage)
        kernel.mount(
            "tmpfs", storage, "tmpfs", _PLAIN, f"size={storage_bytes},nr_inodes={storage_bytes // 4096},mode=755"
        )
        for number, folder in enumerate(writable):
            own, target = f"{storage}/{number}", f"{root}{folder}"
            os.makedirs(target, exist_ok=True)
            os.mkdir(own)
            self._give(own)
            if folder in ("/tmp", "/var/tmp", "/dev/shm"):
                os.chmod(own, 0o1777)
            kernel.mount(own, target, None, kernel.MS_BIND)
        kernel.unmount(storage)  # the folders stay: each is a mount of its own
        os.rmdir(storage)

    def do_put(self, data: bytes, files: list[list[Any]], fresh: list[str]) -> tuple[dict[str, Any], bytes]:
        """Write files; the folders in `fresh` are emptied before, by mounting a new file system over each."""
        for folder in fresh:
            if os.path.ismount(folder):  # it would keep its memory
                kernel.unmount(folder)
            kernel.mount("tmpfs", folder, "tmpfs", _PLAIN, _SMALL_TMPFS)
            self._give(folder)
        start = 0
        for path, mode, size in files:
            if size < 0:
                os.makedirs(path, exist_ok=True)
            else:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, mode), "wb") as file:
                    file.write(data[start : start + size])
                start += size
            while path not in ("/", *fresh):
                self._give(path)
                path = os.path.dirname(path)
                if os.path.ismount(path):
                    break
        return {}, b""

    def do_run(
        self,
        data: bytes,
        command: list[str],
        folder: str,
        environment: dict[str, str],
        timeout_s: float,
        memory_bytes: int,
        output_bytes: int,
    ) -> tuple[dict[str, Any], bytes]:
        """Run a command, and end all that it started; the reply has its output."""

        def confine() -> None:
            if os.path.exists("/proc/self"):  # when memory runs out, the kernel is to kill this first
                Path("/proc/self/oom_score_adj").write_text(_OOM_FIRST, encoding="ascii")
            for which, limit in (
                (resource.RLIMIT_DATA, memory_bytes),
                (resource.RLIMIT_NPROC, MAX_PROCESSES),
                (resource.RLIMIT_NOFILE, MAX_OPEN_FILES),
                (resource.RLIMIT_CORE, 0),
                (resource.RLIMIT_MEMLOCK, 0),
                (resource.RLIMIT_MSGQUEUE, 0),
            ):
                ceiling = resource.getrlimit(which)[1]
                limit = limit if ceiling == resource.RLIM_INFINITY else min(limit, ceiling)
                resource.setrlimit(which, (limit, limit))
            if self._changes_user:
                kernel.become(namespaces.INSIDE_UID, namespaces.INSIDE_UID, self._machine)
            kernel.set_capabilities(0, self._machine)
            kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1, "no_new_privs")
            self._filter.install()

        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=confine,
        )
        assert process.stdout is not None
        with process.stdout as pipe:
            os.set_blocking(pipe.fileno(), False)
            output = _Output(pipe.fileno(), output_bytes)
            status = _watched(process, output, time.monotonic() + timeout_s)
            _end_all()
            output.drain()
        return {"status": status, "code": process.returncode}, output.kept()

    def do_read(self, data: bytes, path: str, limit: int) -> tuple[dict[str, Any], bytes]:
        """Read a regular file, up to a limit; a link is none."""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as error:
            return {"missing": error.strerror}, b""
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return {"missing": "it is no file"}, b""
            return {}, os.read(fd, limit)
        finally:
            os.close(fd)

    def do_cut(self, data: bytes, places: list[str]) -> tuple[dict[str, Any], bytes]:
        """Remove links to some places from the writable folders: what is put there later would show through them."""
        end, left = time.monotonic() + _CUT_S, list(self._writable)
        while left:
            folder = left.pop()
            try:
                device = os.lstat(folder).st_dev
                for entry in list(os.scandir(folder)):
                    if time.monotonic() > end:
                        return {"hidden": "too many links"}, b""
                    if entry.is_symlink() and _leads_to(entry.path, places):
                        os.unlink(entry.path)
                    elif entry.is_dir(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_dev == device:
                        left.append(entry.path)
            except OSError as error:  # nested deeper than a path can say
                return {"hidden": f"{folder[:40]}…: {error.strerror}"}, b""
        return {}, b""

    def do_list(self, data: bytes, path: str) -> tuple[dict[str, Any], bytes]:
        """Return the names in a folder."""
        return {"names": os.listdir(path)[:MAX_NAMES]}, b""

    def _give(self, path: str) -> None:
        if self._changes_user:
            os.chown(path, namespaces.INSIDE_UID, namespaces.INSIDE_UID, follow_symlinks=False)


_ETC = {
    "passwd": "root:x:0:0::/root:/bin/bash\nuser:x:1000:1000::/root:/bin/bash\nnobody:x:65534:65534::/:/bin/false\n",
    "group": "root:x:0:\nuser:x:1000:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}


def _show(root: str, path: str) -> None:
    """Make a file or folder of the host visible at its own path, read-only; a link stays a link."""
    if not os.path.lexists(path):
        return
    if os.path.islink(path):
        os.makedirs(os.path.dirname(root + path), exist_ok=True)
        os.symlink(os.readlink(path), root + path)
        return
    namespaces.bind(root, path, kernel.MS_NOSUID if path in namespaces.DEVICES else _READ_ONLY)


def _leads_to(link: str, places: list[str]) -> bool:
    """Whether a link leads to one of some places, by its text or followed to its end."""
    try:
        ends = (os.path.normpath(os.path.join(os.path.dirname(link), os.readlink(link))), os.path.realpath(link))
    except RecursionError:  # the kernel follows 40 links
        return True
    return any(end == place or end.startswith(f"{place}/") for end in ends for place in places)


def _watched(process: subprocess.Popen[bytes], output: _Output, end: float) -> str:
    """Wait until a process ends, its time runs out, or it has written too much; says which."""
    with selectors.DefaultSelector() as selector:
        selector.register(output.fd, selectors.EVENT_READ)
        while True:
            if _has_ended(process):
                return "ended"
            left_s = end - time.monotonic()
            if left_s <= 0:
                return "timeout"
            if output.size > MAX_OUTPUT_BYTES:
                return "output_limit"
            if not selector.get_map():
                time.sleep(min(left_s, _LOOK_S))
            elif selector.select(min(left_s, _LOOK_S)) and not output.drain():
                selector.unregister(output.fd)


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Collect what has ended: of the process its exit code, of orphans nothing."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == process.pid:
                process.returncode = os.waitstatus_to_exitcode(ended[1])
    return process.returncode is not None


class _Output:
    """Beginning and end of what is read from a pipe.

    Attributes:
        fd: Descriptor of the pipe, which does not block.
        size: Bytes that were read.
    """

    def __init__(self, fd: int, limit: int) -> None:
        self.fd, self.size = fd, 0
        self._half, self._data = limit // 2, bytearray()

    def drain(self) -> bool:
        """Read what there is; returns whether there may be more later."""
        with contextlib.suppress(BlockingIOError):
            while self.size <= MAX_OUTPUT_BYTES:
                more = os.read(self.fd, 1 << 16)
                if not more:
                    return False
                self.size += len(more)
                self._data += more
                if len(self._data) > 4 * self._half + (1 << 16):
                    del self._data[self._half : -self._half]
        return True

    def kept(self) -> bytes:
        """The bytes within the limit; a line says how many are left out between them."""
        if self.size <= 2 * self._half:
            return bytes(self._data)
        omitted = f"\n[{self.size - 2 * self._half} bytes]\n".encode()
        return bytes(self._data[: self._half] + omitted + self._data[len(self._data) - self._half :])


def _end_all() -> None:
    """Kill every other process of these namespaces, and wait until none is left."""
    with contextlib.suppress(ChildProcessError):
        while True:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
            if not os.waitpid(-1, os.WNOHANG)[0]:
                time.sleep(0.001)
