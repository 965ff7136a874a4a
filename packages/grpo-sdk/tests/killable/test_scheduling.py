"""Load is nobody's fault: the time that a worker waits for a processor is not its payload's."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from grpo_sdk.killable import KillablePool, scheduling

pytestmark = pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the kernel does not count waits")

LIMIT_S = 0.4
OTHERS = 5
"""Processes that compute beside the worker on its one processor."""


@pytest.fixture(scope="module")
def workers() -> Iterator[KillablePool]:
    with KillablePool("killable_targets:make_on_one_processor", workers=1, name="test") as workers:
        workers.warm()
        yield workers


@pytest.fixture(scope="module")
def others() -> Iterator[None]:
    here = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(here)})
    try:  # in sessions of their own, because Linux may share its time out between sessions
        command = [sys.executable, "-S", "-c", "while True: pass"]
        started = [subprocess.Popen(command, start_new_session=True) for _ in range(OTHERS)]
    finally:
        os.sched_setaffinity(0, here)
    yield
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.usefixtures("others")
@pytest.mark.parametrize("payload", ["compute", "started_compute"])
def test_time_that_others_have_the_processor_does_not_count(workers: KillablePool, payload: str) -> None:
    outcome = workers.submit(f"{payload}:{LIMIT_S / 2}".encode(), LIMIT_S).result()
    assert outcome.status == "ok"
    assert outcome.seconds > LIMIT_S  # else this showed nothing


@pytest.mark.usefixtures("others")
def test_what_gets_no_processor_at_all_is_nobodys_fault(workers: KillablePool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling, "PATIENCE_S", 0.0)
    outcome = workers.submit(f"compute:{0.9 * LIMIT_S}".encode(), LIMIT_S).result()
    assert outcome.status == "unavailable"
    assert outcome.why.startswith("the machine is too busy")
    stats = workers.stats
    assert (stats.timeouts, stats.quarantined, stats.unavailable) == (0, 0, 1)


@pytest.mark.usefixtures("others")
@pytest.mark.parametrize("payload", ["spin:", "sleep:60", "stop:"])
def test_what_computes_or_sleeps_too_long_is_ended_on_a_busy_machine_too(workers: KillablePool, payload: str) -> None:
    outcome = workers.submit(payload.encode(), LIMIT_S).result()
    assert (outcome.status, outcome.why) == ("timeout", f"no answer within {LIMIT_S:g} s")


def test_what_earlier_payloads_waited_for_is_not_given_to_later_ones(workers: KillablePool) -> None:
    waits = scheduling.Waits(os.getpid())
    waits.begin()
    waits.look()
    assert waits.left_s(1.0, 0.5) < 0.75  # this process has waited for longer than 0.25 s, but not since
    waits.close()
    assert waits.left_s(1.0, 0.75) == 0.25
