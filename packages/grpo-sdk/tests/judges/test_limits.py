import subprocess
import sys
from itertools import accumulate
from pathlib import Path

import limited_requests
import pytest

from grpo_sdk.judges.database import LEASE_SLACK_S, POLL_S, WINDOW_S, Bounds, SharedLimits, UnusableDatabaseError

PROGRAM = (sys.executable, limited_requests.__file__)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def limits(folder: Path, bounds: Bounds, clock: Clock, name: str = "m at http://a") -> SharedLimits:
    return SharedLimits(folder / "limits.sqlite", name, bounds, clock=clock)


def waits(limits: SharedLimits, tokens: int = 1) -> float:
    """Seconds to wait before a request; 0 where it may be sent, and is over at once."""
    begun = limits.begin(tokens)
    if isinstance(begun, float):
        return begun
    limits.end(begun, tokens)
    return 0.0


def test_requests_per_minute_hold_in_any_minute(tmp_path: Path) -> None:
    clock = Clock()
    shared = limits(tmp_path, Bounds(10, requests_per_minute=3), clock)

    for _ in range(3):
        assert waits(shared) == 0
        clock.now += 10
    assert waits(shared) == pytest.approx(30), "the first of the three was 30 s ago"
    clock.now += 30.01
    assert waits(shared) == 0
    assert waits(shared) == pytest.approx(10, abs=0.1)


def test_tokens_per_minute_count_what_the_requests_had(tmp_path: Path) -> None:
    clock = Clock()
    shared = limits(tmp_path, Bounds(10, tokens_per_minute=100), clock)

    begun = shared.begin(90)
    assert isinstance(begun, int)
    assert waits(shared, 20) == pytest.approx(WINDOW_S)
    shared.end(begun, 10)
    assert waits(shared, 20) == 0
    assert waits(shared, 71) == pytest.approx(WINDOW_S)
    assert waits(shared, 70) == 0
    assert waits(shared, 500) == pytest.approx(WINDOW_S)  # more than a minute has waits until it is alone
    clock.now += WINDOW_S
    assert waits(shared, 500) == 0


def test_two_that_name_the_same_model_share_the_limits_and_others_do_not(tmp_path: Path) -> None:
    clock = Clock()
    bounds = Bounds(2)
    one, two = limits(tmp_path, bounds, clock), limits(tmp_path, bounds, clock)
    other = limits(tmp_path, bounds, clock, "n at http://b")

    first, second = one.begin(1), two.begin(1)
    assert isinstance(first, int) and isinstance(second, int)
    assert one.begin(1) == two.begin(1) == POLL_S
    assert isinstance(other.begin(1), int)
    two.end(second, 1)
    assert isinstance(one.begin(1), int)


def test_the_slots_of_a_killed_process_are_free_again(tmp_path: Path) -> None:
    subprocess.run([*PROGRAM, str(tmp_path / "limits.sqlite"), "die"], check=False, timeout=60)

    shared = SharedLimits(tmp_path / "limits.sqlite", "m at http://a", Bounds(1, lease_s=1e6))
    assert isinstance(shared.begin(1), int)


def test_a_slot_is_taken_from_what_hangs(tmp_path: Path) -> None:
    clock = Clock()
    shared = limits(tmp_path, Bounds(1, lease_s=20.0), clock)

    assert isinstance(shared.begin(1), int)
    clock.now += 20 + LEASE_SLACK_S
    assert shared.begin(1) == POLL_S
    clock.now += 1
    assert isinstance(shared.begin(1), int)


def test_processes_together_have_no_more_in_flight_than_is_allowed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    processes = [subprocess.Popen([*PROGRAM, str(tmp_path / "limits.sqlite"), str(log)]) for _ in range(3)]
    assert [process.wait(60) for process in processes] == [0, 0, 0]

    changes = [1 if sign == "+" else -1 for sign in log.read_text()]
    assert len(changes) == 36 and max(accumulate(changes)) == 2


def test_a_broken_file_is_made_again_and_one_that_cannot_be_made_is_an_error(tmp_path, caplog):
    (tmp_path / "limits.sqlite").write_bytes(b"this is no database" * 100)
    shared = limits(tmp_path, Bounds(1), Clock())
    assert isinstance(shared.begin(1), int)
    assert shared.begin(1) == POLL_S
    assert caplog.text.count("limits.sqlite is broken") == 1
    (tmp_path / "file").write_text("")
    with pytest.raises(UnusableDatabaseError):
        limits(tmp_path / "file", Bounds(1), Clock()).begin(1)
