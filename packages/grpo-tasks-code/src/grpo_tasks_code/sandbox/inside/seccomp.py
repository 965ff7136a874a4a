"""The system calls that a program may make: an allow-list, compiled to a seccomp filter.

Calls that are not listed fail with EPERM, which Python shows as PermissionError. Calls that no honest program makes end
it with SIGSYS, and so do calls of another architecture's kernel interface, where numbers mean other calls.
"""

from __future__ import annotations

import ctypes
import errno
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from grpo_tasks_code.sandbox.inside import kernel
from grpo_tasks_code.sandbox.inside.syscalls import ALLOWED, AUDIT_ARCH, FAILING, FATAL, OWN_FILES, Machine, number

# <linux/bpf_common.h>
LOAD, AND, JUMP, JUMP_IF_EQUAL, JUMP_IF_AT_LEAST, RETURN = 0x20, 0x54, 0x05, 0x15, 0x35, 0x06
KILL_PROCESS, ERRNO, ALLOW = 0x80000000, 0x00050000, 0x7FFF0000  # SECCOMP_RET_…

NUMBER_OFFSET, ARCH_OFFSET, ARGUMENTS_OFFSET = 0, 4, 16  # struct seccomp_data; an argument is 8 bytes, low word first

X32_BIT = 0x40000000
"""Set in the numbers of x86_64's second, x32, interface."""

OWN_PID = 0xFFFFFFFF
"""Placeholder in a filter for the process id of the program, which is known only after the fork."""

_INSTRUCTION = struct.Struct("=HBBI")

ERRORS = dict.fromkeys(FAILING, errno.ENOTSUP)  # shutil.copy2 goes on after this error and no other
# Its flags are in memory, which a filter cannot read: the C library falls back to clone.
ERRORS["clone3"] = errno.ENOSYS
"""Errors other than EPERM."""


_ALL_BITS = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Word:
    """A condition: the bits in the mask of an argument's low word, or of its high one, are one of these values."""

    argument: int
    values: tuple[int, ...]
    mask: int = _ALL_BITS
    is_high: bool = False


# CLONE_VM, FS, FILES, SIGHAND, THREAD: what the C library's threads share. One with descriptors of its own would have
# a limit of descriptors of its own too.
_CLONE_REQUIRED = 0x100 | 0x200 | 0x400 | 0x800 | 0x10000
_CLONE_NEW = 0x7E020000  # every CLONE_NEW…
_CLONE_FORBIDDEN = _CLONE_NEW | 0x2000  # CLONE_PTRACE
_AF_UNIX, _SOCK_STREAM, _SOCK_TYPE_MASK = 1, 1, 0xF
_FCNTL = (0, 1, 2, 3, 4, 1030, 1032)
"""F_DUPFD to F_SETFL, F_DUPFD_CLOEXEC, F_GETPIPE_SZ; not F_SETOWN, which can have signals sent to any process."""
_FCNTL_LOCKS = (5, 6, 7, 36, 37, 38)
"""F_GETLK to F_SETLKW, and their F_OFD forms."""
_SETUID_AND_SETGID = 0o6000
_PR_SET_NAME, _PR_GET_NAME = 15, 16

CHECKED: dict[str, tuple[Word, ...]] = {
    "clone": (Word(0, (_CLONE_REQUIRED,), _CLONE_REQUIRED | _CLONE_FORBIDDEN),),  # threads, no processes
    "kill": (Word(0, (OWN_PID,)),),
    "tkill": (Word(0, (OWN_PID,)),),  # the first thread has the number of the process
    "tgkill": (Word(0, (OWN_PID,)),),
    "prlimit64": (Word(0, (0,)),),  # itself, and only downwards: it has no capability
    "prctl": (Word(0, (_PR_SET_NAME, _PR_GET_NAME)),),
    "fcntl": (Word(1, _FCNTL),),
    # TCGETS (isatty), TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX; not FIOSETOWN, nor TIOCSTI
    "ioctl": (Word(1, (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)),),
    # A datagram socket could be sent to any other by name: only streams, and only to the peer (the pointer is null).
    "socketpair": (Word(0, (_AF_UNIX,)), Word(1, (_SOCK_STREAM,), _SOCK_TYPE_MASK)),
    "sendto": (Word(4, (0,)), Word(4, (0,), is_high=True)),
}
"""Allowed when every condition holds."""

CHECKED_OWN_FILES: dict[str, tuple[Word, ...]] = {
    "fcntl": (Word(1, _FCNTL + _FCNTL_LOCKS),),
    "chmod": (Word(1, (0,), _SETUID_AND_SETGID),),
    "fchmod": (Word(1, (0,), _SETUID_AND_SETGID),),
    "fchmodat": (Word(2, (0,), _SETUID_AND_SETGID),),
}
"""Conditions of further calls in namespaces."""

Instruction = tuple[int, int, int, int]
"""Operation, jump if true, jump if false, constant."""


Block = tuple[Instruction, ...]
"""Instructions that end with a verdict on every path."""

_EPERM: Block = ((RETURN, 0, 0, ERRNO | errno.EPERM),)
_KILL: Block = ((RETURN, 0, 0, KILL_PROCESS),)


def assemble(machine: Machine, *, own_files: bool) -> list[Instruction]:
    """Return the filter for an architecture.

    The filter finds numbers by binary search. When a filter is installed, the kernel runs it once for each number to
    cache the calls that are always allowed; a linear search would make that the slowest step of a program's start.

    Args:
        machine: Architecture.
        own_files: Whether all files that the program can see are its own.
    """
    return _filter(machine, _rules(own_files), _EPERM)


def assemble_for_shell(machine: Machine) -> list[Instruction]:
    """Return the filter of shell commands: everything but the calls that only a program makes which wants out."""
    denied = [(name, _EPERM) for name in FATAL]
    return _filter(
        machine,
        [
            *denied,
            ("clone", _allow_if((Word(0, (0,), _CLONE_NEW),))),
            ("clone3", ((RETURN, 0, 0, ERRNO | errno.ENOSYS),)),
        ],
        ((RETURN, 0, 0, ALLOW),),
    )


def _filter(machine: Machine, rules: Iterable[tuple[str, Block]], default: Block) -> list[Instruction]:
    blocks = {called: block for name, block in rules if (called := number(name, machine)) is not None}
    if machine == "x86_64":
        blocks[X32_BIT] = _KILL
    steps: list[tuple[int, Block]] = []  # from which number on which block holds, up to the next step
    for called in sorted({0, *blocks, *(called + 1 for called in blocks if called != X32_BIT)}):
        block = blocks.get(called, default)
        if not steps or steps[-1][1] != block:
            steps.append((called, block))
    return [
        (LOAD, 0, 0, ARCH_OFFSET),
        (JUMP_IF_EQUAL, 1, 0, AUDIT_ARCH[machine]),
        *_KILL,
        (LOAD, 0, 0, NUMBER_OFFSET),
        *_search(steps),
    ]


def _rules(own_files: bool) -> Iterator[tuple[str, Block]]:
    allow: Block = ((RETURN, 0, 0, ALLOW),)
    yield from ((name, allow) for name in (*ALLOWED, *(OWN_FILES if own_files else ())))
    checked = CHECKED | CHECKED_OWN_FILES if own_files else CHECKED
    yield from ((name, _allow_if(conditions)) for name, conditions in checked.items())
    yield from ((name, ((RETURN, 0, 0, ERRNO | code),)) for name, code in ERRORS.items())
    yield from ((name, _KILL) for name in FATAL)


def _search(steps: Sequence[tuple[int, Block]]) -> list[Instruction]:
    """Return instructions that find the block of the last step that is not above the number."""
    if len(steps) == 1:
        return list(steps[0][1])
    middle = len(steps) // 2
    below, above = _search(steps[:middle]), _search(steps[middle:])
    return [(JUMP_IF_AT_LEAST, 0, 1, steps[middle][0]), (JUMP, 0, 0, len(below)), *below, *above]


def _allow_if(conditions: tuple[Word, ...]) -> Block:
    """Allow if all conditions hold, else EPERM; built from the end, where the distance to the refusal is known."""
    block: list[Instruction] = [(RETURN, 0, 0, ALLOW), *_EPERM]
    for word in reversed(conditions):
        masked = [] if word.mask == _ALL_BITS else [(AND, 0, 0, word.mask)]
        *others, last = word.values
        tests = [(JUMP_IF_EQUAL, len(others) - index, 0, value) for index, value in enumerate(others)]
        to_refusal = len(block) - 1
        offset = ARGUMENTS_OFFSET + 8 * word.argument + 4 * word.is_high
        block = [(LOAD, 0, 0, offset), *masked, *tests, (JUMP_IF_EQUAL, 0, to_refusal, last), *block]
    return tuple(block)


class _SockFprog(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


class Program:
    """Instructions in the kernel's format.

    Attributes:
        code: Bytes of the instructions.
        head: The struct sock_fprog that refers to them.
    """

    def __init__(self, instructions: Sequence[Instruction]) -> None:
        code = b"".join(_INSTRUCTION.pack(*instruction) for instruction in instructions)
        self.code = ctypes.create_string_buffer(code, len(code))
        self.head = _SockFprog(len(instructions), ctypes.cast(self.code, ctypes.c_void_p))

    def install(self) -> None:
        """Filter the system calls of this process irrevocably. Needs no_new_privs.

        Raises:
            OSError: the kernel refuses.
        """
        pointer = ctypes.byref(self.head)
        kernel.prctl(kernel.PR_SET_SECCOMP, kernel.SECCOMP_MODE_FILTER, "install the system-call filter", pointer)


class Filter:
    """A filter into which a program's process id is inserted.

    Args:
        machine: Architecture.
        own_files: Whether all visible files are the program's own, as in `assemble`.
    """

    def __init__(self, machine: Machine, *, own_files: bool) -> None:
        instructions = assemble(machine, own_files=own_files)
        self._program = Program(instructions)
        self._pid_offsets = [
            index * _INSTRUCTION.size + 4
            for index, (operation, _, _, constant) in enumerate(instructions)
            if (operation, constant) == (JUMP_IF_EQUAL, OWN_PID)
        ]

    def install(self, pid: int) -> None:
        """Filter the system calls of this process irrevocably. Needs no_new_privs.

        Raises:
            OSError: the kernel refuses.
        """
        for offset in self._pid_offsets:
            struct.pack_into("=I", self._program.code, offset, pid)
        self._program.install()
