"""One verifier for every thread, process and event loop."""

import multiprocessing
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from grpo_sdk import InfrastructureError, KillablePool, Outcome
from grpo_sdk.killable.outcome import Status
from grpo_tasks_math.verify import Verdict, check, close, symbolic, verify, warm

PAIRS = [
    (r"\frac{\sqrt{2}}{2}", r"\boxed{\frac{1}{\sqrt{2}}}", Verdict.CORRECT),
    (r"\sqrt[3]{x} + 1", r"\boxed{1 + \sqrt[3]{x}}", Verdict.CORRECT),
    (r"\sqrt[3]{x} + 1", r"\boxed{\sqrt[3]{x} - 1}", Verdict.WRONG),
]


@pytest.fixture(scope="module", autouse=True)
def warmed() -> Iterator[None]:
    warm()
    yield
    close()


def test_from_many_threads_whose_time_in_the_queue_does_not_count() -> None:
    # 40 checks of some ms for few workers: all of them end, though together they take longer than one limit.
    pairs = [(rf"\sqrt[3]{{x}} + {n}", rf"\boxed{{{n} {'+' if n % 2 else '-'} \sqrt[3]{{x}}}}") for n in range(40)]
    with ThreadPoolExecutor(40) as threads:
        verdicts = list(threads.map(lambda pair: verify(*pair, 5.0), pairs))
    assert verdicts == [Verdict.WRONG, Verdict.CORRECT] * 20


def _in_child(results: object) -> None:
    results.put(verify(*PAIRS[0][:2], 60.0).value)  # type: ignore[attr-defined]  # a multiprocessing queue


def test_in_a_forked_child_while_the_parent_verifies() -> None:
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    with check._lock, warnings.catch_warnings():
        # Python 3.12 warns of a fork beside threads; that it works is what is tested, with the lock held besides.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = context.Process(target=_in_child, args=(results,), daemon=True)
        child.start()
    assert results.get(timeout=120) == "correct"
    child.join(30)
    assert child.exitcode == 0
    assert verify(*PAIRS[1][:2], 60.0) is Verdict.CORRECT


def test_inside_a_worker_there_is_no_second_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).with_name("programs"))
    with KillablePool("nested_verifier:factory", workers=1) as workers:
        right, wrong = workers.map([rb"\boxed{1 + \sqrt[3]{x}}", rb"\boxed{1 - \sqrt[3]{x}}"], 60.0)
    assert (right.value, wrong.value) == (b"correct 0", b"wrong 0")


class FakePool:
    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome

    def submit(self, payload: bytes, timeout_s: float) -> Future[Outcome]:
        future: Future[Outcome] = Future()
        future.set_result(self.outcome)
        return future


@pytest.mark.parametrize("status", ["timeout", "crashed", "error"])
def test_a_spent_budget_is_a_timeout(status: Status, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "_shared_pool", lambda: FakePool(Outcome(status, why="3 s, SIGSEGV, MemoryError")))
    assert verify(r"\sqrt[3]{x} + 1", r"\boxed{2x}") is Verdict.TIMEOUT


def test_machinery_that_does_not_start_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "_shared_pool", lambda: FakePool(Outcome("unavailable", why="no such program")))
    with pytest.raises(InfrastructureError, match="no such program"):
        verify(r"\sqrt[3]{x} + 1", r"\boxed{2x}")
    assert verify("2", "2") is Verdict.CORRECT  # the exact path needs no worker


def test_out_of_memory_inside_a_worker_is_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(payload: bytes) -> bytes:
        raise MemoryError

    monkeypatch.setattr(check, "inside_worker", lambda: True)
    monkeypatch.setattr(symbolic, "handle", exhausted)
    assert verify(r"\sqrt[3]{x} + 1", r"\boxed{2x}") is Verdict.TIMEOUT


def test_importing_it_loads_no_engine_and_a_process_that_verified_ends_by_itself() -> None:
    program = Path(__file__).with_name("programs") / "exact_then_symbolic.py"
    done = subprocess.run([sys.executable, "-W", "error", program], capture_output=True, text=True, timeout=120)
    assert (done.stdout.strip(), done.returncode) == ("correct", 0), done.stderr


def test_after_close_all_threads_have_one_new_pool() -> None:
    close()
    close()
    start = threading.Barrier(4)

    def shared(_: int) -> object:
        start.wait()
        return check._shared_pool()

    with ThreadPoolExecutor(4) as threads:
        assert len({id(each) for each in threads.map(shared, range(4))}) == 1
    assert verify(*PAIRS[2][:2], 60.0) is Verdict.WRONG
