"""The time of a program on a busy machine, with counts of the kernel that are made up."""

import time

import pytest

from grpo_tasks_code.sandbox.host.job import RECHECK_S, TimeLimit
from grpo_tasks_code.sandbox.host.scheduling import Scheduling

LIMIT_S = 2.0


def limit_after(spent_s: float) -> TimeLimit:
    """The limit of a program that has been waited for so long."""
    limit = TimeLimit(LIMIT_S)
    limit.start_at(time.monotonic() - spent_s)
    limit.stop()
    return limit


@pytest.mark.parametrize(("spent_s", "found", "before_s", "verdict"), [
    (3.0, Scheduling(cpu_s=2.5), 0.0, "timeout"),
    (3.0, Scheduling(), 0.0, "timeout"),  # asleep counts too
    (3.0, Scheduling(cpu_s=2.5, delay_s=900.0), 0.0, "timeout"),  # threads that keep one another waiting
    (3.0, Scheduling(cpu_s=2.5, delay_s=3.0), 2.4, None),  # before the program began
    (1e3, Scheduling(cpu_s=0.5, delay_s=1e3), 0.0, "sandbox_error"),  # patience has an end
])  # fmt: skip
def test_how_a_program_that_runs_long_is_judged(
    spent_s: float, found: Scheduling, before_s: float, verdict: str | None
) -> None:
    limit = limit_after(spent_s)
    assert limit.left_s < 0
    assert limit.extend(lambda: found, Scheduling(before_s)) == verdict
    assert limit.is_starved == (verdict == "sandbox_error")


def test_time_that_others_took_is_given_back() -> None:
    limit = limit_after(3.0)
    assert limit.extend(lambda: Scheduling(cpu_s=0.5, delay_s=2.0), Scheduling()) is None
    assert limit.left_s == pytest.approx(1.0, abs=0.2)  # 3 s by the clock less 2 s of delay leave 1 of 2 s
    waiting = limit_after(3.0)
    assert waiting.extend(lambda: Scheduling(cpu_s=0.5, is_ready=True), Scheduling()) is None
    assert waiting.left_s <= RECHECK_S  # it is looked at again soon
    waiting.renew()
    assert waiting.left_s == LIMIT_S
