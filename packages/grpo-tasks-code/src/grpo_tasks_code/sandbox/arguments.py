"""Arguments of runs: defaults, limits, and their checks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from grpo_sdk import UserError
from grpo_tasks_code.sandbox.results import Policy

DEFAULT_TIMEOUT_S, DEFAULT_TESTS_TIMEOUT_S = 3.0, 10.0
DEFAULT_MEMORY_MIB = 512
DEFAULT_OUTPUT_BYTES = 1 << 20

MAX_PROGRAM_BYTES = 1 << 20
"""Longer programs are denied: compiling one could take gigabytes."""
MAX_STDIN_BYTES = 64 << 20
MAX_OUTPUT_BYTES = 64 << 20
"""Limit of the output that the calling process holds."""
MAX_TIMEOUT_S = 3600.0
PATIENCE, PATIENCE_S = 3, 10.0
"""Most wall-clock time of a program on a busy machine: this many times its limit, plus this many seconds."""
RUNS_OF_A_STARVED_PROGRAM = 2
MAX_MEMORY_MIB = 1 << 20
MAX_WORKERS = 256
MAX_MACHINE_STATE = 7
"""Each state has servers of its own."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Resource limits of a program.

    Attributes:
        timeout_s: Time limit in seconds, by the clock and on the processor.
        memory_mib: Address space in MiB beyond that of Python itself.
        output_bytes: Limit of stdout, and of stderr.

    Raises:
        UserError: a number out of range.
    """

    timeout_s: float = DEFAULT_TIMEOUT_S
    memory_mib: int = DEFAULT_MEMORY_MIB
    output_bytes: int = DEFAULT_OUTPUT_BYTES

    def __post_init__(self) -> None:
        check_number("timeout_s", self.timeout_s, 0.0, MAX_TIMEOUT_S, is_open=True)
        check_whole("memory_mib", self.memory_mib, 1, MAX_MEMORY_MIB)
        check_whole("output_limit_bytes", self.output_bytes, 0, MAX_OUTPUT_BYTES)


@dataclass(frozen=True, slots=True)
class Script:
    """A program that is to run as a script; see `Executor.run`.

    Raises:
        UserError: an invalid argument.
    """

    code: str
    stdin: str
    limits: Limits
    policy: Policy | None = None
    machine_state: int = 0

    def __post_init__(self) -> None:
        if self.policy is not None and self.policy not in get_args(Policy):
            raise UserError(f"policy={self.policy!r}: must be None or {', '.join(map(repr, get_args(Policy)))}.")
        check_whole("machine_state", self.machine_state, 0, MAX_MACHINE_STATE)
        size = len(encoded("stdin", self.stdin))
        if size > MAX_STDIN_BYTES:
            raise UserError(f"stdin of {size} bytes: at most {MAX_STDIN_BYTES}.")


def patience_s(limit_s: float) -> float:
    """Return the wall-clock seconds after which a program is ended, however busy the machine."""
    return PATIENCE * limit_s + PATIENCE_S


def longest_run_s(limit_s: float) -> float:
    """Return the seconds within which a program has a verdict, without starting it and waiting for a free server."""
    return RUNS_OF_A_STARVED_PROGRAM * patience_s(limit_s)


def check_number(name: str, value: float, low: float, high: float, *, is_open: bool = False) -> None:
    """Check that a number lies in a range; `is_open` excludes the lower end.

    Raises:
        UserError: the number is out of range.
    """
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not (low < value <= high if is_open else low <= value <= high):  # NaN is nowhere
        raise UserError(f"{name}={value!r}: must be {'above' if is_open else 'at least'} {low:g} and at most {high:g}.")


def check_whole(name: str, value: int, low: int, high: int) -> None:
    """Check that a whole number lies in a range.

    Raises:
        UserError: the number is out of range, or not whole.
    """
    if isinstance(value, float):
        raise UserError(f"{name}={value!r}: must be a whole number.")
    check_number(name, value, low, high)


def encoded(name: str, text: str) -> bytes:
    """Encode a program or its input; lone surrogates are kept, since Python itself decides about them.

    Raises:
        UserError: it is not text.
    """
    if not isinstance(text, str):
        raise UserError(f"{name} is text, not a {type(text).__name__}.")
    return text.encode("utf-8", "surrogatepass")


def refusal_of(code: str) -> str:
    """Return why a program is not run at all; empty if it is run.

    Raises:
        UserError: it is not text.
    """
    size = len(encoded("code", code))
    return "" if size <= MAX_PROGRAM_BYTES else f"the program has {size} bytes; at most {MAX_PROGRAM_BYTES} are run"
