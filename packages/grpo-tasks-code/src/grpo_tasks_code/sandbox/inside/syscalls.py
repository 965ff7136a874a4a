"""System calls by what the filter does with them, with their numbers on two architectures: `syscalls.tbl`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

Machine = Literal["x86_64", "aarch64"]

AUDIT_ARCH: dict[Machine, int] = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""AUDIT_ARCH_… of <linux/audit.h>: how seccomp names the caller's architecture."""


def _table() -> list[list[str]]:
    lines = Path(__file__).with_name("syscalls.tbl").read_text(encoding="ascii").splitlines()
    return [line.split() for line in lines if line and line[0] != "#"]


_CALLS = {name: (verdict, {"x86_64": x86_64, "aarch64": aarch64}) for verdict, x86_64, aarch64, name in _table()}
"""Verdict and numbers of each call, as `syscalls.tbl` describes them."""


def by_verdict(verdict: str) -> tuple[str, ...]:
    """Return the calls of which `syscalls.tbl` says this."""
    return tuple(name for name, (given, _) in _CALLS.items() if given == verdict)


ALLOWED, OWN_FILES, FAILING, FATAL = map(by_verdict, ("allow", "own-files", "fail", "kill"))


def number(name: str, machine: Machine) -> int | None:
    """Return the number of a system call, or None if the architecture does not have it."""
    text = _CALLS[name][1][machine]
    return None if text == "-" else int(text)


def required(name: str, machine: Machine) -> int:
    """Return the number of a system call that both architectures have."""
    value = number(name, machine)
    assert value is not None, name
    return value
