"""The time of a program on a busy machine, with counts of the kernel that are made up."""

from __future__ import annotations

import time

import pytest

from grpo_tasks_code.sandbox.arguments import patience_s
from grpo_tasks_code.sandbox.host.clock import RECHECK_S, Clock, TimeLimit
from grpo_tasks_code.sandbox.host.scheduling import Scheduling

LIMIT_S = 2.0


def limit_after(spent_s: float) -> TimeLimit:
    """The limit of a program that has been waited for so long."""
    limit = TimeLimit(LIMIT_S)
    limit.clock.start_at(time.monotonic() - spent_s)
    limit.clock.stop()
    return limit


def test_a_clock_counts_only_while_it_runs() -> None:
    clock = Clock()
    assert (clock.is_running, clock.spent_s) == (False, 0.0)
    clock.start_at(time.monotonic() - 3.0)
    assert clock.is_running
    assert 2.0 < clock.spent_s < 60.0
    clock.stop()
    spent_s = clock.spent_s
    time.sleep(0.02)
    assert clock.spent_s == spent_s
    clock.start()
    clock.stop()
    assert clock.spent_s >= spent_s


def test_a_program_that_used_its_time_is_ended() -> None:
    limit = limit_after(3.0)
    assert limit.left_s < 0
    assert limit.extend(lambda: Scheduling(cpu_s=2.5), 0.0) == "timeout"
    assert limit.extend(lambda: Scheduling(), 0.0) == "timeout"  # asleep counts too
    assert not limit.is_starved


def test_time_before_the_program_is_not_its_own() -> None:
    assert limit_after(3.0).extend(lambda: Scheduling(cpu_s=2.5, delay_s=3.0), 2.4) is None


def test_time_that_others_took_is_given_back() -> None:
    limit = limit_after(3.0)
    assert limit.extend(lambda: Scheduling(cpu_s=0.5, delay_s=2.0), 0.0) is None
    assert limit.left_s == pytest.approx(1.0, abs=0.2)  # 3 s by the clock less 2 s of delay leave 1 of 2 s


def test_a_program_that_waits_for_a_processor_is_looked_at_again_soon() -> None:
    limit = limit_after(3.0)
    assert limit.extend(lambda: Scheduling(cpu_s=0.5, is_ready=True), 0.0) is None
    assert limit.left_s <= RECHECK_S


def test_patience_has_an_end() -> None:
    limit = limit_after(patience_s(LIMIT_S) + 1.0)
    assert limit.extend(lambda: Scheduling(cpu_s=0.5, delay_s=1e3), 0.0) == "sandbox_error"
    assert limit.is_starved


def test_a_renewed_limit_is_whole() -> None:
    limit = limit_after(3.0)
    limit.renew()
    assert limit.left_s == LIMIT_S
