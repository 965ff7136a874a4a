import asyncio
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ray_clusters import POOLS, executing, local_only

from grpo_sdk.errors import InfrastructureError, UserError
from grpo_sdk.killable import KillablePool, Outcome, supervisor
from grpo_sdk.killable.ray import RayPool

ENOUGH_S = 30.0
"""For what must succeed: never reached, whatever the machine's load."""


@pytest.fixture(autouse=True, scope="module", params=POOLS)
def executor(request: pytest.FixtureRequest) -> Iterator[str]:
    with executing(request.param, __name__, {"KillablePool": RayPool}):
        yield request.param


def pool(workers: int = 1, factory: str = "make", *args: str | float, **options: float) -> KillablePool:
    return KillablePool(f"killable_targets:{factory}", args=args, workers=workers, name="test", **options)


@pytest.fixture(scope="module")
def shared(executor: str) -> Iterator[KillablePool]:
    """For tests that count nothing."""
    with pool(2, memory_mib=512) as workers:
        workers.warm()
        yield workers


@pytest.fixture(scope="module")
def echo(executor: str) -> Iterator[KillablePool]:
    with pool(2, "make_echo") as workers:
        yield workers


def one(workers: KillablePool, payload: str, timeout_s: float = ENOUGH_S) -> Outcome:
    return workers.submit(payload.encode(), timeout_s).result()


def values(outcomes: list[Outcome]) -> list[bytes]:
    assert [outcome.status for outcome in outcomes] == ["ok"] * len(outcomes), outcomes
    return [outcome.value for outcome in outcomes]


# What a handler does


def test_outcomes_are_in_the_order_of_payloads() -> None:
    # Every third is slow, so with two workers the answers come back in another order.
    payloads = [b"sleep:0.02" if index % 3 == 0 else b"echo:%d" % index for index in range(60)]
    with pool(2) as workers:
        outcomes = workers.map(payloads, ENOUGH_S)
        assert workers.stats.answered == 60
        assert workers.map([], 1.0) == []
    assert values(outcomes) == [b"None" if index % 3 == 0 else b"%d" % index for index in range(60)]
    assert all(outcome.seconds >= 0.02 for outcome in outcomes[::3])


@pytest.mark.parametrize(("payload", "head"), [
    ("raise:seven", "ValueError: invalid literal for int() with base 10: 'seven' (killable_targets.py:"),
    ("raise:" + "a\n" * 100_000, "ValueError: "),
    ("wrong:", "TypeError: the handler returned a NoneType, not bytes"),
    ("long:70000000", "ValueError: the handler returned 70000000 bytes; the limit is 67108864"),
    ("bomb:", "MemoryError (killable_targets.py:"),
    ("bomb_in_steps:", "MemoryError (killable_targets.py:"),
])  # fmt: skip
def test_an_exception_is_one_bounded_line_and_harms_nobody_else(shared: KillablePool, payload: str, head: str) -> None:
    before, error, after = shared.map([b"echo:a", payload.encode(), b"echo:b"], ENOUGH_S)
    assert (before.value, after.value) == (b"a", b"b")
    assert error.status == "error" and error.why.startswith(head)
    assert len(error.why) < 700 and "\n" not in error.why


def test_large_payloads_and_answers_pass(echo: KillablePool) -> None:
    # More than any socket buffer, so both directions are cut into pieces; several at once are interleaved.
    payloads = [bytes([65 + index]) * (3 << 20) for index in range(4)]
    assert values(echo.map(payloads, ENOUGH_S)) == payloads


@settings(max_examples=20, deadline=None)
@given(st.lists(st.binary(max_size=300), max_size=40))
def test_any_bytes_return_as_they_were(echo: KillablePool, payloads: list[bytes]) -> None:
    assert values(echo.map(payloads, ENOUGH_S)) == payloads


def test_lines_are_printed_whole_and_the_last_one_gets_its_end(
    capfd: pytest.CaptureFixture[str], executor: str
) -> None:
    local_only(executor, "what is printed on a node goes to Ray's logs")
    with pool(2) as workers:
        workers.map([b"print_pieces:abcdefgh\n%d" % index for index in range(500)], ENOUGH_S)
    lines = capfd.readouterr().err.splitlines()
    assert sorted(lines) == sorted(["abcdefgh"] * 500 + [str(index) for index in range(500)])


def test_prints_are_bounded_and_do_not_disturb_answers(capfd: pytest.CaptureFixture[str], executor: str) -> None:
    local_only(executor, "what is printed on a node goes to Ray's logs")
    with pool() as workers:
        assert values(workers.map([b"print:10000", b"echo:after"], ENOUGH_S)) == [b"None", b"after"]
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("chatter chatter")
    assert err.endswith("... (more was printed and dropped)\n")
    assert len(err) < 4096 + 100  # 10,000 lines of 64 characters were printed, and descriptors written to


def test_a_forked_copy_of_the_worker_does_not_answer() -> None:
    """It comes back from the handler as the worker does; its answer would be taken for that of the next payload."""
    with pool() as workers:
        outcomes = workers.map([b"fork:", b"fork_exit:", *[b"echo:%d" % index for index in range(20)]], ENOUGH_S)
    assert values(outcomes) == [b"parent"] * 2 + [b"%d" % index for index in range(20)]


def test_a_worker_starts_light_without_input_and_knows_what_it_is() -> None:
    with pool() as workers:
        modules = one(workers, "modules:").value.decode().split(",")
        assert one(workers, "variable:GRPO_KILLABLE_WORKER").value
        assert one(workers, "stdin:").value == b""
    assert not {"torch", "numpy", "pydantic", "grpo_core", "asyncio", "concurrent"} & set(modules)


def test_arguments_and_directory_are_handed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = (1, 2.5, "\udcff text", None, [True, {"a": []}])
    with KillablePool("killable_targets:make_arguments", args=arguments, workers=1) as workers:
        assert one(workers, "x").value == repr(arguments).encode()
    monkeypatch.chdir(tmp_path)
    with pool() as workers:
        monkeypatch.chdir("/")  # relative paths keep the meaning they had when the pool was made
        assert one(workers, "cwd:").value == os.fsencode(tmp_path)


def test_environment_variables_are_set_beside_those_of_this_process(monkeypatch, executor):
    local_only(executor, "a node's variables are its own")
    monkeypatch.setenv("GRPO_KILLABLE_OURS", "ours")
    environment = {"PYTHONHASHSEED": "0", "GRPO_KILLABLE_WORKER": "theirs"}
    with KillablePool("killable_targets:make", workers=1, environment=environment) as workers:
        copy = pickle.loads(pickle.dumps(workers))
        assert one(workers, "variable:GRPO_KILLABLE_OURS").value == b"ours"
        assert one(workers, "variable:GRPO_KILLABLE_WORKER").value != b"theirs", "it is how orphans are found"
        with copy:
            assert repr(copy) == repr(workers)
            assert [one(each, "variable:PYTHONHASHSEED").value for each in (workers, copy)] == [b"0"] * 2
            assert one(workers, "pid:").value != one(copy, "pid:").value, "it has workers of its own"


# Deadlines


@pytest.mark.parametrize("payload", ["spin:", "regex:", "stop:", "sleep:60"])
def test_what_does_not_end_is_killed(payload: str) -> None:
    """In Python, in C with the interpreter lock held, and stopped: none can prevent it."""
    with pool(2) as workers:
        workers.warm()
        start = time.monotonic()
        outcomes = workers.map([b"echo:a", payload.encode(), *[b"echo:b"] * 5], 0.3)
        elapsed = time.monotonic() - start
        assert workers.stats.restarts == workers.stats.timeouts == 1
    assert [outcome.status for outcome in outcomes] == ["ok", "timeout", *["ok"] * 5]
    assert outcomes[1].why == "no answer within 0.3 s"
    assert 0.3 <= outcomes[1].seconds <= elapsed < 5


@pytest.mark.parametrize(("before", "payload", "count", "timeout_s"), [
    ([], b"sleep:0.1", 8, 0.5),  # on one worker: the last waits 0.7 s in the queue
    # After quick ones several are sent ahead: the third waits 0.6 s in the worker, and its own 0.3 s are in time.
    ([b"echo:"] * 60, b"sleep:0.3", 3, 0.55),
])  # fmt: skip
def test_time_behind_other_items_does_not_count(before, payload, count, timeout_s):
    with pool() as workers:
        workers.map(before, ENOUGH_S)
        values(workers.map([payload] * count, timeout_s))


def test_slow_payloads_do_not_wait_behind_slower_ones() -> None:
    with pool(2) as workers:
        workers.map([b"sleep:0.02"] * 20, ENOUGH_S)  # by now the pool knows that these are slow
        slow, *quick = [workers.submit(payload, ENOUGH_S) for payload in [b"sleep:1.5", *[b"sleep:0.03"] * 5]]
        assert [future.result().status for future in quick] == ["ok"] * 5
        assert not slow.done()


@pytest.mark.parametrize(("payload", "status", "restarts"), [("sleep:0.25", "ok", 0), ("late_bomb:", "error", 1)])
def test_an_answer_counts_that_came_while_nobody_could_look(payload, status, restarts, executor):
    """Before a deadline that has passed meanwhile, or before its worker left for lack of memory."""
    local_only(executor, "each node looks after its own workers")
    with pool() as workers:
        workers.warm()
        future = workers.submit(payload.encode(), 0.4)
        time.sleep(0.05)
        end = time.monotonic() + 0.7
        interval = sys.getswitchinterval()
        # This thread holds the interpreter lock from before the pool's next look around, at 0.1 s, past the deadline.
        sys.setswitchinterval(10.0)
        try:
            while time.monotonic() < end:
                pass
        finally:
            sys.setswitchinterval(interval)
        assert (future.result().status, workers.stats.restarts) == (status, restarts)


# Crashes


@pytest.mark.parametrize(("payload", "how"), [("die:", "exited with status 3"), ("segfault:", "was killed by SIGSEGV")])
def test_a_killer_is_named_after_one_retry(payload: str, how: str) -> None:
    with pool() as workers:
        outcomes = workers.map([b"echo:a", payload.encode(), b"echo:b", b"echo:c"], ENOUGH_S)
        assert (workers.stats.crashes, workers.stats.restarts) == (1, 2)
    assert [outcome.status for outcome in outcomes] == ["ok", "crashed", "ok", "ok"]
    assert outcomes[1].why == f"its worker {how}, twice"


def test_a_single_death_is_forgiven(tmp_path: Path) -> None:
    with pool() as workers:
        assert one(workers, f"die_once:{tmp_path / 'flag'}").value == b"survived"
        assert (workers.stats.crashes, workers.stats.restarts) == (0, 1)


def test_a_worker_killed_while_idle_is_replaced(executor: str) -> None:
    with pool() as workers:
        for times in range(1, 5):  # more often than starts may fail in a row: each was of use
            os.kill(int(one(workers, "pid:").value), signal.SIGKILL)
            # A payload that is given before its end is noticed ends with it; a node of Ray tells of ends with answers.
            while executor == "local" and workers.stats.restarts < times:
                time.sleep(0.001)


def test_memory_left_behind_does_not_reach_the_limit() -> None:
    # 120 × 16 MiB are kept and 640 MiB allowed: without fresh workers the later ones would raise MemoryError.
    # After the 16th a worker has 256 MiB, after the 32nd 512, more than half: it leaves. 120 / 32 = 3.75.
    with pool(memory_mib=640) as workers:
        values(workers.map([b"keep:16"] * 120, ENOUGH_S))
        assert workers.stats.restarts == 3


# Quarantine


def test_poison_costs_its_deadline_once() -> None:
    with pool() as workers:
        workers.warm()
        start = time.monotonic()
        together = workers.map([b"spin:"] * 30, 0.2)
        assert 0.2 <= time.monotonic() - start < 2
        assert {outcome.status for outcome in together} == {"timeout"}
        assert workers.stats.quarantined == 29
        start = time.monotonic()
        again = workers.map([b"spin:"] * 50, 0.2)
        assert time.monotonic() - start < 0.2
        assert workers.stats.quarantined == 79
        why = "quarantined, as for the same input before: no answer within 0.2 s"
        assert {(outcome.status, outcome.why) for outcome in again} == {("timeout", why)}


def test_more_time_is_another_chance(shared: KillablePool) -> None:
    assert one(shared, "sleep:0.4", 0.1).status == "timeout"
    assert one(shared, "sleep:0.4").status == "ok"
    assert one(shared, "die:", 1.0).status == "crashed"
    assert one(shared, "die:", 2.0).why.startswith("quarantined, as for the same input before: its worker exited")


def test_a_fallback_follows_a_payload_that_timed_out(shared: KillablePool) -> None:
    late = shared.submit_as(b"spin:late", 0.2, lambda outcome: outcome, fallback=lambda: b"echo:late").result()
    assert (late.status, late.value) == ("timeout", b"late")


# Workers that cannot start


@pytest.mark.parametrize(("target", "reason"), [
    ("no_such_module_at_all:make", "ModuleNotFoundError: No module named 'no_such_module_at_all'"),
    ("killable_targets:no_such", "AttributeError: module 'killable_targets' has no attribute 'no_such'"),
    ("killable_targets:make_nothing", "TypeError: killable_targets:make_nothing() returned a NoneType"),
    ("killable_targets:make_loudly", "ValueError: long long"),
])  # fmt: skip
def test_a_broken_target_is_unavailable_with_the_reason(target: str, reason: str) -> None:
    with KillablePool(target, workers=2) as workers:
        outcomes = workers.map([b"a", b"b", b"c"], ENOUGH_S)
        with pytest.raises(InfrastructureError) as caught:
            workers.warm()
        assert workers.stats.unavailable == 3
    assert {outcome.status for outcome in outcomes} == {"unavailable"}
    assert f"no worker for {target}: {reason}" in outcomes[0].why
    assert str(caught.value) == outcomes[0].why
    assert len(outcomes[0].why) < 700


def test_a_target_that_loads_for_ever_is_unavailable(executor: str) -> None:
    local_only(executor, "the limit is also that of joining the cluster")
    with pool(1, "make_slowly", 600, start_timeout_s=0.2) as workers:
        outcome = one(workers, "echo:")
    assert outcome.status == "unavailable"
    assert "the target was not loaded after 0.2" in outcome.why


def test_restarts_are_bounded(tmp_path: Path) -> None:
    log = tmp_path / "starts"
    with pool(1, "make_counted", str(log)) as workers:
        for _ in range(20):
            outcome = one(workers, "echo:")
            assert outcome.why.endswith("a worker exited with status 7 while it loaded the target")
        time.sleep(0.1)
    assert len(log.read_text().splitlines()) == supervisor.MAX_FAILED_STARTS


def test_after_a_pause_one_worker_tries_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, executor: str) -> None:
    local_only(executor, "each attempt joins the cluster again")
    monkeypatch.setattr(supervisor, "FIRST_PAUSE_S", 0.05)
    monkeypatch.setattr(supervisor, "LONGEST_PAUSE_S", 0.05)
    log, needed = tmp_path / "starts", tmp_path / "there"
    with pool(4, "make_counted", str(log)) as workers:
        workers.map([b"echo:"] * 8, ENOUGH_S)
        before = len(log.read_text().splitlines())
        assert before >= 4
        time.sleep(0.2)
        assert one(workers, "echo:").status == "unavailable"
        assert len(log.read_text().splitlines()) == before + 1
    with pool(1, "make_when_there", str(needed)) as workers:
        assert one(workers, "echo:").status == "unavailable"
        needed.touch()
        time.sleep(0.15)
        assert one(workers, "echo:back").value == b"back"


# Callers


def test_a_thread_that_ends_takes_no_worker_with_it() -> None:
    """Linux sends the parent-death signal when the starting thread ends, so no caller's thread may start workers."""
    with pool() as workers:
        pids: list[bytes] = []
        for _ in range(3):
            caller = threading.Thread(target=lambda: pids.append(one(workers, "pid:").value))
            caller.start()
            caller.join()
            time.sleep(0.05)
        assert workers.stats.restarts == 0
    assert len(set(pids)) <= 2, "a spare may answer in its place"


def test_asyncio_is_not_blocked(shared: KillablePool) -> None:
    async def main() -> tuple[list[Outcome], int]:
        scoring = asyncio.ensure_future(shared.amap([b"sleep:0.1", b"echo:a", b"sleep:0.1"], ENOUGH_S))
        ticks = 0
        while not scoring.done():
            await asyncio.sleep(0.01)
            ticks += 1
        return scoring.result(), ticks

    outcomes, ticks = asyncio.run(main())
    assert [outcome.value for outcome in outcomes] == [b"None", b"a", b"None"]
    assert ticks >= 5


def test_a_cancelled_payload_is_not_run(tmp_path: Path) -> None:
    with pool() as workers:
        workers.warm()
        first, second = (workers.submit(b"sleep:0.2", ENOUGH_S) for _ in range(2))
        unwanted = workers.submit(f"sleeper:{tmp_path / 'ran'}".encode(), ENOUGH_S)
        assert unwanted.cancel()
        assert first.result().status == second.result().status == "ok"
        assert one(workers, "echo:").status == "ok"
        with pytest.raises(CancelledError):
            unwanted.result()
    assert not (tmp_path / "ran").exists()


def test_a_converter_that_fails_fails_its_future_only(shared: KillablePool) -> None:
    bad = shared.submit_as(b"echo:", ENOUGH_S, lambda outcome: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        bad.result()
    assert shared.submit_as(b"echo:a", ENOUGH_S, lambda outcome: outcome.value).result() == b"a"


@pytest.mark.parametrize(("arguments", "message"), [
    ({"target": "module"}, "write module:factory"),
    ({"target": "__main__:f"}, "another process can import"),
    ({"target": "m:f", "workers": 0}, "workers=0 must be at least 1"),
    ({"target": "m:f", "memory_mib": 0}, "memory_mib=0 must be at least 1"),
    ({"target": "m:f", "start_timeout_s": 0.0}, "start_timeout_s=0.0 must be a number of seconds above 0"),
    ({"target": "m:f", "args": (b"x",)}, "must be plain JSON values"),
])  # fmt: skip
def test_arguments_that_cannot_be_meant(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        KillablePool(**arguments)


def test_a_package_that_is_no_files_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grpo_sdk.killable.worker.__file__", "grpo.zip/grpo_sdk/killable/worker.py")
    with pytest.raises(UserError, match=r"no file grpo\.zip.*unpacked"):
        pool()


@pytest.mark.parametrize(("payload", "timeout_s", "message"), [
    (b"", 0.0, "timeout_s=0.0"),
    (b"", float("nan"), "timeout_s=nan"),
    ("text", 1.0, "a payload is bytes, not a str"),
    (bytes((64 << 20) + 1), 1.0, "longer than 67108864"),
])  # fmt: skip
def test_payloads_that_cannot_be_meant(shared: KillablePool, payload: bytes, timeout_s: float, message: str) -> None:
    with pytest.raises(UserError, match=message):
        shared.submit(payload, timeout_s)
