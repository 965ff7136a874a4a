"""The system-call filter, by running its program on the calls of both architectures."""

import errno
import re
import struct
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_tasks_code.sandbox.inside import seccomp
from grpo_tasks_code.sandbox.inside.seccomp import (
    ALLOW,
    CHECKED,
    CHECKED_OWN_FILES,
    ERRNO,
    ERRORS,
    KILL_PROCESS,
    OWN_PID,
    Instruction,
)
from grpo_tasks_code.sandbox.inside.syscalls import ALLOWED, AUDIT_ARCH, FATAL, OWN_FILES, Machine, number
from grpo_tasks_code.sandbox.inside.threads import ASK, questions

X86_64, AARCH64, I386, ARM = 0xC000003E, 0xC00000B7, 0x40000003, 0x40000028
EPERM = ERRNO | errno.EPERM
MACHINES: list[Machine] = ["x86_64", "aarch64"]
THREAD, FORK = 0x3D0F00, 17  # what glibc and musl pass: VM, FS, FILES, SIGHAND, THREAD, SYSVSEM, SETTLS, …; SIGCHLD
assemble = cache(seccomp.assemble)


def verdict(machine: Machine, call: int, *arguments: int, own_files: bool = False, arch: int | None = None) -> int:
    """What the kernel would do."""
    return result_of(assemble(machine, own_files=own_files), machine, call, *arguments, arch=arch)


def asked(machine: Machine, name: str, *arguments: int, own_files: bool = False) -> int:
    return verdict(machine, number(name, machine) or -1, *arguments, own_files=own_files)


def result_of(program: list[Instruction], machine: Machine, call: int, *arguments: int, arch: int | None = None) -> int:
    """Runs a filter on a `struct seccomp_data`."""
    arguments += (0,) * (6 - len(arguments))
    data = struct.pack("<iIQ6Q", call, AUDIT_ARCH[machine] if arch is None else arch, 0, *arguments)
    accumulator, at = 0, 0
    for _ in range(len(program)):
        operation, if_true, if_false, constant = program[at]
        at += 1
        if operation == seccomp.LOAD:
            (accumulator,) = struct.unpack_from("<I", data, constant)
        elif operation == seccomp.AND:
            accumulator &= constant
        elif operation == seccomp.JUMP:
            at += constant
        elif operation == seccomp.JUMP_IF_EQUAL:
            at += if_true if accumulator == constant else if_false
        elif operation == seccomp.JUMP_IF_AT_LEAST:
            at += if_true if accumulator >= constant else if_false
        else:
            assert operation == seccomp.RETURN
            return constant
    raise AssertionError("it does not end")


def test_the_numbers_of_the_architectures() -> None:
    assert AUDIT_ARCH == {"x86_64": X86_64, "aarch64": AARCH64}  # EM_X86_64 = 62, EM_AARCH64 = 183, 64-bit, little
    known = {
        "read": (0, 63), "write": (1, 64), "openat": (257, 56), "clone": (56, 220), "kill": (62, 129),
        "ptrace": (101, 117), "unshare": (272, 97), "prctl": (157, 167), "capset": (126, 91), "mmap": (9, 222),
        "bpf": (321, 280), "clone3": (435, 435), "landlock_restrict_self": (446, 446),
    }  # fmt: skip
    assert {name: (number(name, "x86_64"), number(name, "aarch64")) for name in known} == known


@pytest.mark.parametrize(("machine", "header", "pattern"), [
    ("x86_64", "/usr/include/x86_64-linux-gnu/asm/unistd_64.h", r"#define __NR_(\w+) (\d+)"),
    ("aarch64", "/usr/include/asm-generic/unistd.h", r"#define __NR(?:3264)?_(\w+)\s+(\d+)"),
])  # fmt: skip
def test_the_tables_are_those_of_the_kernel(machine: Machine, header: str, pattern: str) -> None:
    if not Path(header).exists():
        pytest.skip(f"the kernel's headers are not installed: {header}")
    kernel = {name: int(value) for name, value in re.findall(pattern, Path(header).read_text(encoding="utf-8"))}
    # The generic header numbers some by a common name of the 32-bit and the 64-bit call.
    kernel |= {ours: kernel[theirs] for ours, theirs in {"newfstatat": "fstatat"}.items() if theirs in kernel}
    names = {*ALLOWED, *OWN_FILES, *FATAL, *ERRORS, *CHECKED, *CHECKED_OWN_FILES}
    found = {name: called for name in names if (called := number(name, machine)) is not None}
    assert found == {name: kernel.get(name) for name in found}
    if machine == "x86_64":  # the other's headers still name calls that only other architectures keep
        assert not {name for name in names if number(name, machine) is None} & set(kernel)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("own_files", [False, True])
def test_every_call_has_the_verdict_of_its_list(machine: Machine, own_files: bool) -> None:
    expected = {number(name, machine): ALLOW for name in (*ALLOWED, *(OWN_FILES if own_files else ()))}
    expected |= {number(name, machine): ERRNO | code for name, code in ERRORS.items()}
    expected |= {number(name, machine): KILL_PROCESS for name in FATAL}
    checked = {number(name, machine) for name in (CHECKED | CHECKED_OWN_FILES if own_files else CHECKED)}
    for call in set(range(600)) - checked:
        assert verdict(machine, call, own_files=own_files) == expected.get(call, EPERM), call
    assert len(assemble(machine, own_files=own_files)) < 4096  # BPF_MAXINSNS


@pytest.mark.parametrize("machine", MACHINES)
def test_another_architectures_calls_are_fatal(machine: Machine) -> None:
    for foreign in {X86_64, AARCH64, I386, ARM} - {AUDIT_ARCH[machine]}:  # a process can switch to the 32-bit ones
        assert {verdict(machine, call, arch=foreign) for call in (0, 1, 56, 60, 63, 64, 93)} == {KILL_PROCESS}


@given(st.integers(0, 0xFFF))
def test_the_second_interface_of_x86_64_is_fatal(call: int) -> None:
    assert verdict("x86_64", 0x40000000 + call) == KILL_PROCESS
    assert verdict("x86_64", -1 - call) == KILL_PROCESS  # a negative number is above the bit


@pytest.mark.parametrize("machine", MACHINES)
def test_threads_and_no_processes(machine: Machine) -> None:
    assert asked(machine, "clone", THREAD) == ALLOW
    assert asked(machine, "clone", 0xFFFFFFFF00000000 | THREAD) == ALLOW  # the kernel, too, takes the low word
    missing = [THREAD & ~flag for flag in (0x100, 0x200, 0x400, 0x800, 0x10000)]
    namespaces = [THREAD | 1 << bit for bit in (17, 25, 26, 27, 28, 29, 30)]
    for flags in (FORK, 0x4111, *missing, *namespaces):  # the second is vfork
        assert asked(machine, "clone", flags) == EPERM, hex(flags)


@pytest.mark.parametrize("machine", MACHINES)
def test_signals_to_oneself_only(machine: Machine) -> None:
    assert asked(machine, "kill", OWN_PID, 9) == asked(machine, "tgkill", OWN_PID, 7, 9) == ALLOW
    for other in (0, 1, 2, 1 << 31, OWN_PID - 1):  # 0 is the group
        assert asked(machine, "kill", other, 9) == asked(machine, "tgkill", other, OWN_PID, 9) == EPERM


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("name", "allowed", "refused", "own_files"), [
    ("sendto", [(3, 1, 1, 0, 0)], [(3, 1, 1, 0, 1), (3, 1, 1, 0, 1 << 32)], False),  # an address in either word
    ("socketpair", [(1, 1 | 0o2000000)], [(1, 2), (1, 5), (2, 1)], False),  # AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC
    ("prlimit64", [(0, 7)], [(1, 7)], False),
    ("fcntl", [(1, 3)], [(1, 8), (1, 10), (1, 1031), (1, 6)], False),  # F_SETOWN, F_SETSIG, a lock
    ("fcntl", [(1, 6)], [(1, 8)], True),
    ("ioctl", [(0, 0x5401)], [(0, 0x5412), (0, 0x8901)], False),  # TIOCSTI, FIOSETOWN
    ("prctl", [(15,)], [(1,), (22,), (38,)], False),
    ("fchmodat", [], [(0, 0, 0o755)], False),
    ("fchmodat", [(0, 0, 0o755)], [(0, 0, 0o4755)], True),
    ("fchmod", [(0, 0o755)], [(0, 0o2755)], True),
])  # fmt: skip
def test_arguments_that_reach_others(
    machine: Machine, name: str, allowed: list[tuple[int, ...]], refused: list[tuple[int, ...]], own_files: bool
) -> None:
    assert {asked(machine, name, *arguments, own_files=own_files) for arguments in allowed} <= {ALLOW}
    assert {asked(machine, name, *arguments, own_files=own_files) for arguments in refused} == {EPERM}


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("own_files", [False, True])
def test_what_must_never_be_allowed(machine: Machine, own_files: bool) -> None:
    # By number, so that a slip in the lists is seen: socket, connect, bind, execve, execveat, setuid, sendmsg,
    # memfd_create, seccomp, pidfd_open, setsid, fork, vfork.
    numbers = {
        "x86_64": (41, 42, 49, 59, 322, 105, 46, 319, 317, 434, 112, 57, 58),
        "aarch64": (198, 203, 200, 221, 281, 146, 211, 279, 277, 434, 157),
    }[machine]
    assert {verdict(machine, call, own_files=own_files) for call in numbers} == {EPERM}


@pytest.mark.parametrize("machine", MACHINES)
def test_only_threads_are_asked_about(machine: Machine) -> None:
    clone, program = number("clone", machine), questions(machine)
    assert clone is not None
    assert result_of(program, machine, clone, THREAD) == ASK
    assert result_of(program, machine, clone, THREAD | 1 << 32) == ASK
    assert result_of(program, machine, clone, FORK) == ALLOW
    assert result_of(program, machine, clone, THREAD, arch=I386) == ALLOW  # the other filter kills it
    assert {result_of(program, machine, other, THREAD) for other in {*range(500)} - {clone}} == {ALLOW}
