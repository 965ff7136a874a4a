"""What a pool leaves behind: nothing, however it, a worker or its own process ends."""

from __future__ import annotations

import contextlib
import errno
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import killable_targets
import psutil
import pytest
from waiting import eventually

from grpo_sdk.errors import InfrastructureError
from grpo_sdk.killable import KillablePool
from grpo_sdk.killable import worker as program
from grpo_sdk.killable.process import WorkerProcess

ENOUGH_S = 30.0
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="keepers are Linux's")
HERE = str(Path(killable_targets.__file__).parent)


_OTHERS: list[psutil.Process] = []
"""Processes that other tests of this process have left running, such as a shared sandbox."""


@pytest.fixture(autouse=True, params=["started", pytest.param("forked", marks=LINUX)])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How workers come to be."""
    if request.param == "forked":
        monkeypatch.setattr(sys.modules[__name__], "PRELOAD", "killable_targets")
        with pool() as workers:
            workers.warm()  # the server stays
    _OTHERS[:] = processes()
    return str(request.param)


FORKED = pytest.mark.parametrize("way", [pytest.param("forked", marks=LINUX)], indirect=True)
"""For tests of the fork server itself, which is there whatever the others use."""

PRELOAD: str | None = None


def pool(workers: int = 1) -> KillablePool:
    return KillablePool("killable_targets:make", workers=workers, name="test", preload=PRELOAD)


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE  # whose parent died may wait for init for ever
    except psutil.NoSuchProcess:
        return False


def noted(path: Path, count: int = 1) -> list[int]:
    assert eventually(lambda: path.exists() and len(path.read_text().splitlines()) >= count)
    return [int(line) for line in path.read_text().splitlines()]


def pid_of(workers: KillablePool) -> int:
    return int(workers.submit(b"pid:", ENOUGH_S).result().value)


def processes() -> list[psutil.Process]:
    """The keepers of this process's workers, or the workers where they have none, and its other children."""
    found = psutil.Process().children()
    for server in list(found):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            if program.FORKS in server.cmdline():  # it collects its children once in a while
                found += [child for child in server.children() if is_running(child.pid)]
    return found


def children() -> list[psutil.Process]:
    return [process for process in processes() if process not in _OTHERS]


@LINUX
@pytest.mark.parametrize("end", ["timeout", "crash", "close", "killed", "trainer killed", "trainer killed while busy"])
def test_processes_in_sessions_of_their_own_end_with_their_worker(end: str, tmp_path: Path) -> None:
    log = tmp_path / "pids"
    if end.startswith("trainer"):
        verb = "escape_spin" if "busy" in end else "escape"
        script = start_script(f'workers.submit(b"{verb}:{log}", 600)\ntime.sleep(600)')
        assert all(map(is_running, noted(log, 2)))
        script.kill()
        script.communicate()
    else:
        with pool() as workers:
            if end == "timeout":
                assert workers.submit(f"escape_spin:{log}".encode(), 1.0).result().status == "timeout"
            elif end == "crash":
                assert workers.submit(f"escape_die:{log}".encode(), ENOUGH_S).result().status == "crashed"
            else:
                worker = int(workers.submit(f"escape_pid:{log}".encode(), ENOUGH_S).result().value)
                assert all(map(is_running, noted(log, 2)))  # they live as long as their worker
                if end == "killed":
                    os.kill(worker, signal.SIGKILL)
                    assert eventually(lambda: not any(map(is_running, noted(log, 2))))
    assert eventually(lambda: not any(map(is_running, noted(log, 4 if end == "crash" else 2))))


def test_a_death_is_noticed_though_a_forked_child_holds_the_socket(tmp_path: Path) -> None:
    log = tmp_path / "pids"
    with pool() as workers:
        start = time.monotonic()
        outcome = workers.submit(f"forked_die:{log}".encode(), ENOUGH_S).result()
        assert time.monotonic() - start < 10
        assert (outcome.status, outcome.why) == ("crashed", "its worker exited with status 3, twice")
        assert eventually(lambda: not any(map(is_running, noted(log, 2))))


def test_closing_while_busy_answers_everybody() -> None:
    workers = pool(2)
    workers.warm()
    futures = [workers.submit(b"spin:%d" % index, 600) for index in range(8)]
    time.sleep(0.05)
    start = time.monotonic()
    workers.close()
    assert time.monotonic() - start < 5
    assert {(future.result().status, future.result().why) for future in futures} == {
        ("unavailable", "the pool was closed")
    }
    workers.close()
    with pytest.raises(InfrastructureError, match="the pool of 'test' workers is closed"):
        workers.submit(b"echo:", 1.0)
    with pytest.raises(InfrastructureError):
        workers.warm()


def test_a_forgotten_pool_finishes_its_work_and_ends() -> None:
    before = {child.pid for child in children()}
    future = pool().submit(b"sleep:0.1", ENOUGH_S)
    gc.collect()
    assert future.result().status == "ok"
    assert eventually(lambda: {child.pid for child in children()} <= before)


def resources() -> tuple[int, int]:
    return psutil.Process().num_fds(), len(children())


def test_many_deaths_leak_nothing() -> None:
    with pool(2) as workers:
        workers.submit(b"sleep:60", 0.01).result()
        workers.warm()
        assert eventually(lambda: resources()[1] == 3)  # with the spare
        descriptors, _ = resources()
        # Different bytes, or quarantine would answer. The first 10 kill two workers each, the others one.
        crashed = workers.map([b"die:%d" % index for index in range(10)], ENOUGH_S)
        killed = workers.map([b"sleep:60.%d" % index for index in range(20)], 0.01)
        assert {outcome.status for outcome in crashed} == {"crashed"}
        assert {outcome.status for outcome in killed} == {"timeout"}
        assert workers.stats.restarts == 41
        workers.warm()
        # A spare that was still loading above has one descriptor more now; a leak would have 40.
        assert eventually(lambda: resources()[0] <= descriptors + 1 and resources()[1] == 3), (resources(), descriptors)
        assert not [child for child in children() if child.status() == psutil.STATUS_ZOMBIE]


def test_a_closed_pool_leaves_no_descriptor_and_no_process() -> None:
    before = resources()
    for _ in range(5):
        with pool(2) as workers:
            workers.map([b"echo:a", b"die:", b"echo:b"], ENOUGH_S)
    assert resources() == before


def worker_pids() -> set[int]:
    """The workers of all pools: each is the only child of its keeper."""
    found = set()
    for keeper in children():
        with contextlib.suppress(psutil.NoSuchProcess):
            found |= {child.pid for child in keeper.children() if child.status() != psutil.STATUS_ZOMBIE}
    return found


@LINUX
def test_a_spare_that_was_there_before_the_hang_answers_after_it() -> None:
    others = worker_pids()  # of pools that live as long as this process, such as the math verifier's
    with pool() as workers:
        workers.submit(b"sleep:60", 0.01).result()
        for hang in range(2):
            assert eventually(lambda: len(worker_pids() - others) == 2)
            before = worker_pids() - others
            assert workers.submit(b"spin:%d" % hang, 1.0).result().status == "timeout"
            assert pid_of(workers) in before
            assert eventually(lambda before=before: len(worker_pids() & before) == 1)  # the one that hung is gone


def test_a_pool_of_quick_payloads_has_no_spare_until_one_takes_long() -> None:
    with pool() as workers:
        workers.warm()
        workers.map([b"echo:"] * 100, ENOUGH_S)
        time.sleep(0.3)
        assert len(children()) == 1
        workers.submit(b"sleep:2", ENOUGH_S)
        assert eventually(lambda: len(children()) == 2, 1.5)


# The process of the pool


def start_script(body: str, factory: str = "make", *args: str) -> subprocess.Popen[str]:
    head = f"""
        import os, signal, sys, threading, time
        sys.path.insert(0, {HERE!r})
        from grpo_sdk.killable import KillablePool, supervisor
        supervisor.SPARES = 0
        workers = KillablePool("killable_targets:{factory}", args={args!r}, workers=2, preload={PRELOAD!r})
        pid = lambda: int(workers.submit(b"pid:", 30).result().value)
        workers.warm()
    """
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(head) + textwrap.dedent(body)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.parametrize(
    "state",
    ["", 'workers.submit(b"spin:", 600)', '[workers.submit(b"sleep:1", 600) for _ in range(9)]', "workers.close()"],
    ids=["idle", "busy", "queued", "closed"],
)
def test_a_process_ends_cleanly_with_its_pool_open(state: str) -> None:
    script = start_script(f"print(pid(), flush=True)\n{state}\ntime.sleep(0.05)")
    out, err = script.communicate(timeout=30)
    assert (script.returncode, err) == (0, "")
    assert eventually(lambda: not is_running(int(out)))


def test_a_process_that_ends_lets_idle_workers_run_their_exit_handlers(tmp_path: Path) -> None:
    script = start_script("", "make_with_exit_handler", str(tmp_path / "log"))
    assert script.communicate(timeout=30) == ("", "")
    assert (tmp_path / "log").read_text() == "left in peace\n" * 2


def test_workers_and_what_they_started_die_with_a_killed_trainer(tmp_path: Path) -> None:
    """By SIGKILL, while one worker is stuck in C with the interpreter lock and the other is idle."""
    log = tmp_path / "pids"
    script = start_script(f'print(pid(), flush=True)\nworkers.submit(b"pid_power:{log}", 600)\ntime.sleep(600)')
    assert script.stdout is not None
    idle = int(script.stdout.readline())
    stuck, started_by_it = noted(log, 2)
    assert all(map(is_running, (stuck, started_by_it)))
    script.kill()
    script.communicate()
    assert eventually(lambda: not any(map(is_running, (idle, stuck, started_by_it))))


@LINUX
def test_a_worker_dies_with_its_keeper() -> None:
    with pool() as workers:
        worker = pid_of(workers)
        keeper = psutil.Process(worker).parent()
        assert keeper is not None and keeper in children()
        keeper.kill()
        assert eventually(lambda: not is_running(worker))
        assert pid_of(workers) != worker


@LINUX
def test_no_variable_of_this_process_is_left_where_a_worker_could_read_it(way, monkeypatch):
    monkeypatch.setenv("GRPO_TEST_KEY", "key of a judge")
    monkeypatch.setenv("PYTHON_GRPO_TEST", "so that a new fork server has the key, if there is one")
    with pool() as workers:
        pid_of(workers)
        monkeypatch.setattr("grpo_sdk.killable.secrets._withheld", {"GRPO_TEST_KEY"})
        with pool() as others:
            started_with = others.submit(b"environ:", ENOUGH_S).result().value
            assert b"key of a judge" not in started_with
            assert others.submit(b"variable:GRPO_TEST_KEY", ENOUGH_S).result().value == b""
            mark = others.submit(b"variable:GRPO_KILLABLE_WORKER", ENOUGH_S).result().value
    assert b"GRPO_KILLABLE_WORKER=%b\0" % mark in started_with


@FORKED
@pytest.mark.parametrize("payloads", [["echo:"], ["sleep:0.4", "sleep:0.5"], ["echo:"] * 50])
@pytest.mark.parametrize("wait_s", [0.0, 0.3])
def test_the_end_of_a_fork_server_costs_no_payload_its_outcome(payloads: list[str], wait_s: float) -> None:
    with pool(2) as workers:
        workers.warm()
        keeper = psutil.Process(pid_of(workers)).parent()
        assert keeper is not None and keeper.ppid() != os.getpid()
        before = [workers.submit(b"%s%d" % (text.encode(), 0), ENOUGH_S) for text in payloads]
        os.kill(keeper.ppid(), signal.SIGKILL)
        time.sleep(wait_s)
        after = [workers.submit(b"%s%d" % (text.encode(), 1), ENOUGH_S) for text in payloads]
        assert {future.result().status for future in (*before, *after)} == {"ok"}
        assert workers.stats.quarantined == 0
        assert eventually(lambda: not is_running(keeper.pid))


@FORKED
def test_a_process_that_ignores_the_end_of_children_has_a_fork_server_that_does_not() -> None:
    body = """
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        os.environ["TZ"] = "UTC-1"  # for which there is no server yet
        with KillablePool("killable_targets:make", workers=2, preload="killable_targets") as others:
            outcomes = others.map([b"die:", b"sleep:0.5", b"echo:x"], 30.0)
        print([outcome.status for outcome in outcomes], outcomes[0].why)
        """
    out, err = start_script(body).communicate(timeout=60)
    assert (out.strip(), err) == ("['crashed', 'ok', 'ok'] its worker exited with status 3, twice", "")


def _with_an_old_kernel(patch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int) -> int:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    patch.setattr("os.pidfd_open", refuse)


@LINUX
@pytest.mark.parametrize(
    ("verb", "prepare"),
    [("escape", lambda patch: None), ("escape_spin", lambda patch: None), ("escape", _with_an_old_kernel)],
)
def test_what_a_worker_started_ends_though_its_keeper_was_killed(verb, prepare, tmp_path, monkeypatch):
    prepare(monkeypatch)
    log = tmp_path / "pids"
    with pool() as workers:
        worker = pid_of(workers)
        workers.submit(f"{verb}:{log}".encode(), ENOUGH_S)
        escaped = noted(log, 2)
        keeper = psutil.Process(worker).parent()
        assert keeper is not None
        keeper.kill()
        assert eventually(lambda: not any(map(is_running, [worker, *escaped])))
    assert eventually(lambda: not any(map(is_running, noted(log, 2))))  # of the second attempt too, where there is one


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_pool_that_fails_answers_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(worker: WorkerProcess) -> None:
        raise RuntimeError("out of luck")

    monkeypatch.setattr(WorkerProcess, "kill_orphans", fail)
    with pool() as workers:
        futures = [workers.submit(payload, ENOUGH_S) for payload in (b"die:", b"echo:innocent")]
        outcomes = [future.result(ENOUGH_S) for future in futures]
    assert [outcome.status for outcome in outcomes] == ["unavailable"] * 2
    assert outcomes[0].why.startswith("the pool failed: RuntimeError: out of luck")


@LINUX
def test_what_detached_processes_leave_is_collected_while_their_worker_lives() -> None:
    with pool() as workers:
        keeper = psutil.Process(pid_of(workers)).parent()
        assert keeper is not None
        for index in range(5):
            assert workers.submit(b"fork_twice:%d" % index, ENOUGH_S).result().status == "ok"
        assert eventually(lambda: len(keeper.children()) == 1)


def test_ctrl_c_reaches_the_trainer_only() -> None:
    script = start_script(
        """
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite in the background ignores it
        futures = [workers.submit(b"sleep:0.5", 30) for _ in range(2)]
        try:
            print("ready", flush=True)
            time.sleep(60)
        except KeyboardInterrupt:
            print([future.result().status for future in futures], workers.stats.restarts, flush=True)
        """
    )
    assert script.stdout is not None
    assert script.stdout.readline() == "ready\n"
    os.killpg(script.pid, signal.SIGINT)
    out, err = script.communicate(timeout=30)
    assert (out, err) == ("['ok', 'ok'] 0\n", "")


# Forks


def _use_in_child(workers: KillablePool, parents_worker: int, answers: multiprocessing.Queue[object]) -> None:
    mine = pid_of(workers)
    statuses = [outcome.status for outcome in workers.map([b"echo:a", b"spin:", b"echo:b"], 0.5)]
    answers.put((parents_worker, mine, statuses))


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_daemonic_child_has_workers_of_its_own() -> None:
    """As torch's DataLoader makes them; busy in the parent at the time of the fork."""
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    with pool() as workers:
        mine = pid_of(workers)
        busy = workers.submit(b"sleep:0.5", ENOUGH_S)
        child = context.Process(target=_use_in_child, args=(workers, mine, answers), daemon=True)
        child.start()
        parents, childs, statuses = answers.get(timeout=30)
        assert statuses == ["ok", "timeout", "ok"]
        assert parents == mine != childs
        child.join(30)
        assert child.exitcode == 0
        assert busy.result().status == "ok"
        assert pid_of(workers) == mine
        assert eventually(lambda: not is_running(childs))
    answers.close()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_does_not_keep_the_parents_workers_alive() -> None:
    """It holds copies of every descriptor, so without care nobody would see the end of file."""
    context = multiprocessing.get_context("fork")
    with pool() as workers:
        mine = pid_of(workers)
        child = context.Process(target=time.sleep, args=(60,), daemon=True)
        child.start()
        start = time.monotonic()
    assert time.monotonic() - start < 0.9  # the worker left at its end of file, not at the end of the grace
    assert not is_running(mine)
    child.kill()
    child.join()
