"""What a caller may ask for: defaults, limits, and the errors beyond them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from grpo_core import UserError
from grpo_tasks_code.sandbox.execution import Policy

DEFAULT_TIMEOUT_S, DEFAULT_TESTS_TIMEOUT_S = 3.0, 10.0
DEFAULT_MEMORY_MIB = 512
DEFAULT_OUTPUT_BYTES = 1 << 20

MAX_PROGRAM_BYTES = 1 << 20
"""A longer program is denied: no model writes it, and compiling it would take gigabytes."""
MAX_STDIN_BYTES = 64 << 20
MAX_OUTPUT_BYTES = 64 << 20
"""What a caller may have this process hold."""
MAX_TIMEOUT_S = 3600.0
PATIENCE, PATIENCE_S = 3, 10.0
"""Times its limit, and seconds beyond, that a program may take by the clock where others keep it from running."""
RUNS_OF_A_STARVED_PROGRAM = 2
MAX_MEMORY_MIB = 1 << 20
MAX_WORKERS = 256
MAX_MACHINE_STATE = 7
"""Each has servers of its own."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a program may use.

    Attributes:
        timeout_s: Seconds, by the clock and on the processor.
        memory_mib: Address space beyond that of Python itself.
        output_bytes: Of stdout, and of stderr.

    Raises:
        UserError: a number that cannot be meant.
    """

    timeout_s: float = DEFAULT_TIMEOUT_S
    memory_mib: int = DEFAULT_MEMORY_MIB
    output_bytes: int = DEFAULT_OUTPUT_BYTES

    def __post_init__(self) -> None:
        check_number("timeout_s", self.timeout_s, 0.0, MAX_TIMEOUT_S, is_open=True)
        check_whole("memory_mib", self.memory_mib, 1, MAX_MEMORY_MIB)
        check_whole("output_limit_bytes", self.output_bytes, 0, MAX_OUTPUT_BYTES)


def patience_s(limit_s: float) -> float:
    """Seconds by the clock after which a program with a limit is ended, however busy the machine."""
    return PATIENCE * limit_s + PATIENCE_S


def longest_run_s(limit_s: float) -> float:
    """Seconds after which there is a verdict on it; starting it, and waiting for a turn, apart."""
    return RUNS_OF_A_STARVED_PROGRAM * patience_s(limit_s)


def check_number(name: str, value: float, low: float, high: float, *, is_open: bool = False) -> None:
    """Check that a number lies in a range, the lower end of which may be excluded.

    Raises:
        UserError: it does not.
    """
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not (low < value <= high if is_open else low <= value <= high):  # NaN is nowhere
        raise UserError(f"{name}={value!r}: must be {'above' if is_open else 'at least'} {low:g} and at most {high:g}.")


def check_whole(name: str, value: int, low: int, high: int) -> None:
    """Check that a whole number lies in a range.

    Raises:
        UserError: it does not, or is none.
    """
    if isinstance(value, float):
        raise UserError(f"{name}={value!r}: must be a whole number.")
    check_number(name, value, low, high)


def check_policy(policy: Policy | None) -> None:
    """Check that there is such a policy.

    Raises:
        UserError: there is not.
    """
    if policy is not None and policy not in get_args(Policy):
        raise UserError(f"policy={policy!r}: must be None or {', '.join(map(repr, get_args(Policy)))}.")


def program_bytes(code: str) -> bytes:
    """A program's text as bytes; lone surrogates too, since the verdict on them is Python's.

    Raises:
        UserError: it is not text.
    """
    return _bytes_of(code, "code")


def stdin_bytes(stdin: str) -> bytes:
    """Likewise its input.

    Raises:
        UserError: it is not text, or too long.
    """
    given = _bytes_of(stdin, "stdin")
    if len(given) > MAX_STDIN_BYTES:
        raise UserError(f"stdin of {len(given)} bytes: at most {MAX_STDIN_BYTES}.")
    return given


def refusal_of(program: bytes) -> str:
    """Why a program is not run at all, or an empty string."""
    if len(program) <= MAX_PROGRAM_BYTES:
        return ""
    return f"the program has {len(program)} bytes; at most {MAX_PROGRAM_BYTES} are run"


def _bytes_of(text: str, name: str) -> bytes:
    if not isinstance(text, str):
        raise UserError(f"{name} is text, not a {type(text).__name__}.")
    return text.encode("utf-8", "surrogatepass")
