"""Diagnosis of the sandbox for `grpo doctor`."""

from __future__ import annotations

import time
from collections.abc import Iterator

from grpo_sdk import Diagnosis
from grpo_tasks_code.sandbox import default_executor
from grpo_tasks_code.sandbox.errors import SandboxUnavailableError
from grpo_tasks_code.sandbox.host import cgroups

_TIMED_PROGRAMS = 20
"""Enough for a meaningful median, in a fifth of a second."""


def diagnose() -> Iterator[Diagnosis]:
    """Report the level with its guarantee and reason, control groups, and how long a program takes."""
    sandbox = default_executor()
    try:
        level = sandbox.level
    except SandboxUnavailableError as error:
        yield Diagnosis("sandbox", "fail", f"code tasks cannot run: {error}")
        return
    yield Diagnosis("sandbox", "ok" if level.name in ("L3", "remote") else "warn", str(level))
    if level.name != "remote":
        yield Diagnosis("sandbox", "ok", cgroups.description())
    times_s = []
    for _ in range(_TIMED_PROGRAMS):
        begin = time.perf_counter()
        execution = sandbox.run("print(6 * 7)")
        times_s.append(time.perf_counter() - begin)
        if (execution.status, execution.stdout) != ("ok", "42\n"):
            reason = execution.last_line or "no reason given"
            yield Diagnosis("sandbox", "fail", f"a program that prints 42 ends with {execution.status}: {reason}")
            return
    median_ms = 1e3 * sorted(times_s)[len(times_s) // 2]
    yield Diagnosis("sandbox", "ok", f"a small program takes {median_ms:.1f} ms")
