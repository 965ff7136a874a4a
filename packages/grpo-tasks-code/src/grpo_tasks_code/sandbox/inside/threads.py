"""A limit of a program's threads where it shares a user with others: the user's limit counts all tasks together.

The kernel asks the server about every new thread (seccomp_unotify(2)); the server counts the existing ones and allows
the call or makes it fail. Programs inherit the filter that asks from the server; it covers threads only, so the
server's own forks are not affected.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct

from grpo_tasks_code.sandbox.inside import kernel, seccomp
from grpo_tasks_code.sandbox.inside.syscalls import AUDIT_ARCH, Machine, required

MAX_THREADS = 256
"""Threads of a program: more than an honest one starts, too few to do harm."""

ASK = 0x7FC00000  # SECCOMP_RET_USER_NOTIF
_CLONE_THREAD = 0x10000
_SET_MODE_FILTER, _NEW_LISTENER = 1, 1 << 3
_RECEIVE, _SEND = 0xC0502100, 0xC0182101  # SECCOMP_IOCTL_NOTIF_…
_QUESTION = struct.Struct("=QII64x")  # struct seccomp_notif: its number, the thread that calls, flags, the call
_ANSWER = struct.Struct("=QqiI")  # struct seccomp_notif_resp: its number, a result, an error, flags
_GO_ON = 1  # SECCOMP_USER_NOTIF_FLAG_CONTINUE


def questions(machine: Machine) -> list[seccomp.Instruction]:
    """Return the filter: every call is allowed, except that a clone which makes a thread asks the server."""
    return [
        (seccomp.LOAD, 0, 0, seccomp.ARCH_OFFSET),
        (seccomp.JUMP_IF_EQUAL, 0, 5, AUDIT_ARCH[machine]),
        (seccomp.LOAD, 0, 0, seccomp.NUMBER_OFFSET),
        (seccomp.JUMP_IF_EQUAL, 0, 3, required("clone", machine)),
        (seccomp.LOAD, 0, 0, seccomp.ARGUMENTS_OFFSET),
        (seccomp.AND, 0, 0, _CLONE_THREAD),
        (seccomp.JUMP_IF_EQUAL, 1, 0, _CLONE_THREAD),
        (seccomp.RETURN, 0, 0, seccomp.ALLOW),
        (seccomp.RETURN, 0, 0, ASK),
    ]


class ThreadBound:
    """Limits the threads of a server's programs. Needs no_new_privs.

    Attributes:
        fd: Descriptor that is readable when there is a question.

    Raises:
        OSError: the kernel refuses.
    """

    def __init__(self, machine: Machine) -> None:
        program = seccomp.Program(questions(machine))
        arguments = (_SET_MODE_FILTER, _NEW_LISTENER, ctypes.addressof(program.head))
        self.fd = kernel.syscall(required("seccomp", machine), *arguments, what="ask about threads")

    def answer(self) -> None:
        """Answer one question."""
        question = bytearray(_QUESTION.size)
        try:
            fcntl.ioctl(self.fd, _RECEIVE, question)
            number, thread, _ = _QUESTION.unpack(question)
            error, flags = (0, _GO_ON) if _threads_beside(thread) < MAX_THREADS else (-errno.EAGAIN, 0)
            fcntl.ioctl(self.fd, _SEND, _ANSWER.pack(number, 0, error, flags))
        except (FileNotFoundError, InterruptedError):  # the asking thread has ended, or asks again
            return


def _threads_beside(thread: int) -> int:
    """Return the number of threads of a thread's process; the limit if the process is not visible."""
    try:
        return os.stat(f"/proc/{thread}/task").st_nlink - 2  # a link for each thread
    except OSError:
        return MAX_THREADS
