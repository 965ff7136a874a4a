"""The sandbox among processes: threads, forks, other users, deaths on either side, and what is left behind."""

import contextlib
import gc
import multiprocessing
import os
import signal
import stat
import subprocess
import sys
import sysconfig
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from waiting import eventually

import grpo_sdk
import grpo_tasks_code
from grpo_sdk import InfrastructureError, KillablePool
from grpo_tasks_code import sandboxed
from grpo_tasks_code.sandbox import Sandbox
from grpo_tasks_code.sandbox.host import job
from grpo_tasks_code.sandbox.host.scheduling import Scheduling
from grpo_tasks_code.sandbox.results import Status

SLOW_MACHINE_S = 60.0
PROGRAMS = Path(__file__).parent / "programs"

_others: set[psutil.Process] = set()
"""Processes of this one that were there before the test: of sandboxes that other tests use."""


@pytest.fixture(autouse=True)
def remembered() -> None:
    _others.clear()
    _others.update(psutil.Process().children(recursive=True))


@pytest.fixture
def sandbox(level: str, remembered: None) -> Iterator[Sandbox]:
    with Sandbox(level, workers=1) as sandbox:
        assert prints_one(sandbox)  # its server is there
        yield sandbox


@pytest.fixture
def any_level(remembered: None) -> Iterator[Sandbox]:
    """A sandbox of one level, for what is the same at each."""
    with Sandbox(workers=1) as sandbox:
        assert prints_one(sandbox)
        yield sandbox


def prints_one(sandbox: Sandbox) -> bool:
    return sandbox.run("print(1)", timeout_s=SLOW_MACHINE_S).stdout == "1\n"


def descendants(of: int | None = None) -> list[psutil.Process]:
    return [each for each in psutil.Process(of).children(recursive=True) if each not in _others]


def all_end(processes: list[psutil.Process]) -> bool:
    return eventually(lambda: not any(each.is_running() for each in processes))


def running_program(sandbox: Sandbox, threads: ThreadPoolExecutor) -> tuple[Any, list[psutil.Process]]:
    """The future of a program without end, which runs, and its processes."""
    before = descendants()
    future = threads.submit(sandbox.run, "import time; time.sleep(1000)", timeout_s=900)
    assert eventually(lambda: len(descendants()) > len(before))
    time.sleep(0.3)  # from the fork to its first line
    return future, [each for each in descendants() if each not in before]


def test_starting_does_not_count(any_level: Sandbox) -> None:
    servers = descendants()
    for server in servers:
        server.suspend()
    # They go on when the program's limit is over twice; its clock begins when its process is ready.
    threading.Timer(2.0, lambda: [server.resume() for server in servers]).start()
    execution = any_level.run("print(1)", timeout_s=1.0)
    assert (execution.status, execution.stdout) == ("ok", "1\n")
    assert execution.wall_s < 1.0


@pytest.fixture
def starving(any_level: Sandbox) -> Iterator[Sandbox]:
    """One whose programs share a processor with many others that always want it."""
    processors = os.sched_getaffinity(0)
    processor = min(processors)
    spin = f"import os; os.sched_setaffinity(0, {{{processor}}})\nwhile True: pass"
    hogs = [subprocess.Popen([sys.executable, "-S", "-c", spin], start_new_session=True) for _ in range(8)]
    try:
        os.sched_setaffinity(0, {processor})  # servers that are started meanwhile share it, too
        for server in descendants():
            server.cpu_affinity([processor])
        yield any_level
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
        os.sched_setaffinity(0, processors)


def test_a_program_that_others_keep_from_running_is_not_at_fault(starving: Sandbox) -> None:
    computes = "import time\nwhile time.process_time() < 0.15: pass\ndef f(n): return n\nprint(1)\n"
    execution = starving.run(computes, timeout_s=0.3)
    assert (execution.status, execution.stdout) == ("ok", "1\n"), execution.stderr
    assert starving.run_tests(computes, ["assert f(1) == 1"], timeout_s=0.3).statuses == ["passed"]
    assert starving.run("import time; time.sleep(600)", timeout_s=1.5).status == "timeout"  # which is no excuse


def test_a_starved_program_is_run_twice(any_level: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def starved(pid: int) -> Scheduling:
        asked.append(pid)
        return Scheduling(cpu_s=0.0, delay_s=900.0)

    monkeypatch.setattr("grpo_tasks_code.sandbox.arguments.PATIENCE_S", 0.0)
    monkeypatch.setattr("grpo_tasks_code.sandbox.host.process.scheduling_of", starved)
    execution = any_level.run("while True: pass", timeout_s=0.1)
    assert execution.status == "sandbox_error" and "the machine is too busy" in execution.stderr
    assert len(set(asked)) == 2
    with pytest.raises(InfrastructureError, match="too busy"):
        sandboxed._check(execution)
    for test in ("assert f(1) == 1", "assert f(1) >= 1"):
        asked.clear()
        result = any_level.run_tests("def f(n):\n    while True: pass", [test], timeout_s=0.1)
        assert result.statuses == ["sandbox_error"] and "the machine is too busy" in result.reasons[0]
        assert len(set(asked)) == 2


def test_an_end_that_is_told_or_seen_late_is_no_timeout(any_level: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    kill, begin = job.Job.kill, job.Job._begin

    def late(self: job.Job, why: Status) -> None:
        time.sleep(1.0)  # the server has seen its end by then, and its word lies unread
        kill(self, why)

    def slow(self: job.Job) -> None:  # as where the trainer's other threads hold the interpreter
        begin(self)
        time.sleep(0.4)

    with monkeypatch.context() as patch:
        patch.setattr(job.Job, "kill", late)
        assert any_level.run("import time; time.sleep(0.4); print(1)", timeout_s=0.2).status == "ok"
        computes = "import time\nwhile time.process_time() < 0.8: pass"
        assert any_level.run(computes, timeout_s=0.2).status == "timeout"
    monkeypatch.setattr(job.Job, "_begin", slow)
    assert any_level.run("print(1)", timeout_s=0.2).status == "ok"


STARTS_FIFTY_THREADS = """
import threading
for _ in range(4):
    done = threading.Barrier(51)
    for _ in range(50): threading.Thread(target=done.wait).start()
    done.wait()
print("fine")
"""


def test_a_program_cannot_take_the_threads_of_its_neighbours(level: str) -> None:
    with Sandbox(level, workers=2) as sandbox, ThreadPoolExecutor(1) as threads:
        assert prints_one(sandbox)
        greedy = threads.submit(sandbox.run, (PROGRAMS / "starts_threads.py").read_text(), timeout_s=4)
        assert eventually(lambda: any(each.num_threads() >= 200 for each in descendants() if each.is_running()))
        neighbour = sandbox.run(STARTS_FIFTY_THREADS, timeout_s=SLOW_MACHINE_S)
        assert (neighbour.status, neighbour.stdout) == ("ok", "fine\n"), neighbour
        assert greedy.result().status == "timeout"
        assert sum(map(int, greedy.result().stdout.split()[1:])) <= 512


def test_a_closed_or_forgotten_sandbox_ends_its_servers(level: str) -> None:
    sandbox = Sandbox(level, workers=1)
    for _ in range(2):
        assert prints_one(sandbox)  # also after it was closed
        family = descendants()
        sandbox.close()
        sandbox.close()
        assert all_end(family)
    assert prints_one(sandbox)
    family = descendants()
    assert family
    del sandbox
    gc.collect()
    assert all_end(family)


@pytest.mark.parametrize("which", [0, -2])  # the launcher; the server itself, at L2 the same
def test_a_server_that_is_killed_costs_the_run_in_flight(sandbox: Sandbox, which: int) -> None:
    with ThreadPoolExecutor(1) as threads:
        future, _ = running_program(sandbox, threads)
        family = [each for each in descendants() if each.status() != psutil.STATUS_ZOMBIE]
        family[which].kill()
        execution = future.result(30)
    assert execution.status == "sandbox_error"
    assert "died" in execution.stderr.splitlines()[-1]
    assert all_end(family)
    assert prints_one(sandbox)


def test_a_server_that_is_killed_while_idle_costs_nothing(sandbox: Sandbox) -> None:
    for process in descendants():
        process.kill()
    assert prints_one(sandbox)
    for process in descendants():
        process.kill()
    assert sandbox.run_tests("def f(n): return n", ["assert f(1) == 1", "assert f(1) != 2"]).passed == 2


ENDINGS = (
    "print(1)",
    "1 / 0",
    "print('x' * 3_000_000)",
    "import os; os._exit(0)",
    "import os; os.kill(os.getpid(), 9)",
    "import os; os.closerange(0, 100)",
    "import threading, time; threading.Thread(target=time.sleep, args=(9,), daemon=True).start()",
    "open('left', 'w').write('x')",
    "x = ",
)


@pytest.mark.parametrize("runs", [100, pytest.param(10_000, marks=pytest.mark.slow)])
def test_nothing_is_left_of_many_runs(sandbox: Sandbox, runs: int) -> None:
    def run_one(index: int) -> None:
        code = ENDINGS[index % len(ENDINGS)]
        if index % 10 == 9:
            sandbox.run_tests(code, ["assert f(1) == 1", "assert f(1) != 2"])
        else:
            assert sandbox.run(code, timeout_s=SLOW_MACHINE_S).status != "sandbox_error"

    for index in range(20):  # the judges' server too
        run_one(index)
    descriptors, processes = len(os.listdir("/proc/self/fd")), len(descendants())
    for index in range(runs):
        run_one(index)
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert eventually(lambda: len(descendants()) == processes)
    assert not [each for each in descendants() if each.status() == psutil.STATUS_ZOMBIE]


def test_a_server_outlives_the_thread_that_needed_it_first(level: str) -> None:
    # Linux kills a child when the thread that started it ends, if the child asked to die with its parent.
    with Sandbox(level, workers=1) as sandbox:
        thread = threading.Thread(target=prints_one, args=(sandbox,))
        thread.start()
        thread.join()
        (first, *_) = descendants()
        time.sleep(0.2)
        assert prints_one(sandbox)
        assert descendants()[0] == first


def test_an_interrupt_ends_the_program(any_level: Sandbox) -> None:
    timer = threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT])
    old = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            any_level.run("while True: pass", timeout_s=900)
    finally:
        signal.signal(signal.SIGINT, old)
    assert prints_one(any_level)


def _in_child(sandbox: Sandbox, results: Any) -> None:
    results.put(prints_one(sandbox))


def test_in_a_forked_child_while_the_parent_runs_a_program(any_level: Sandbox) -> None:
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(any_level.run, "import time; time.sleep(1); print(2)", timeout_s=SLOW_MACHINE_S)
        time.sleep(0.2)
        with warnings.catch_warnings():  # Python 3.12 warns of a fork beside threads: that is tested
            warnings.simplefilter("ignore", DeprecationWarning)
            child = context.Process(target=_in_child, args=(any_level, results))
            child.start()
        assert results.get(timeout=60) is True
        child.join(30)
        assert child.exitcode == 0
        assert running.result(60).stdout == "2\n"
    assert prints_one(any_level)


def test_nothing_outlives_a_process_that_is_killed(level: str) -> None:
    with subprocess.Popen([sys.executable, PROGRAMS / "runs_without_end.py", level]) as process:
        try:
            assert eventually(lambda: len(descendants(process.pid)) >= 4, SLOW_MACHINE_S)  # two servers, two programs
            family = descendants(process.pid)
        finally:
            process.kill()
            process.wait()
        assert all_end(family)


def test_inside_a_scoring_worker_there_is_one_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(PROGRAMS)
    with KillablePool("sandbox_targets:nested", workers=2) as workers:
        assert [each.value for each in workers.map([b"print(1)", b"print(2)"], 120.0)] == [b"1\n1 1", b"2\n1 1"]
        family = [each for each in descendants() if each.status() != psutil.STATUS_ZOMBIE]
    assert all_end(family)


def test_a_killed_scoring_worker_leaves_no_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(PROGRAMS)
    with KillablePool("sandbox_targets:hanging", workers=1) as workers:
        workers.warm()
        family = descendants()
        (outcome,) = workers.map([b""], 1.0)
        assert outcome.status == "timeout"
        assert eventually(lambda: not any(each.is_running() for each in family if each not in descendants()))
    assert all_end(family)


def called(*command: str | Path, **options: Any) -> list[str]:
    """The lines that a program prints."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, **options)
    if done.stderr.startswith("skip"):
        pytest.skip(done.stderr)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return done.stdout.splitlines()


def as_nobody(program: str) -> list[str]:
    """The lines that a program prints for another user, by an interpreter that any user can start."""
    own = os.path.realpath(sys.executable)
    for path in (own, "/usr/bin/python{}.{}".format(*sys.version_info[:2])):
        is_open = all(each.stat().st_mode & stat.S_IXOTH for each in [Path(path), *Path(path).parents] if each.exists())
        if is_open and os.path.exists(path):
            break
    else:
        pytest.skip(f"no interpreter of this version is open to other users: {own} is not")
    sources = [str(Path(package.__file__ or "").parents[1]) for package in (grpo_sdk, grpo_tasks_code)]
    return called(
        *(path, "-B", "-W", "error", "-c", (PROGRAMS / program).read_text()),
        env={"PYTHONPATH": os.pathsep.join([*sources, sysconfig.get_path("purelib")])},
        cwd="/",
        **({"user": 65534, "group": 65534, "extra_groups": []} if os.getuid() == 0 else {}),
    )


def test_signals_that_the_caller_ignores_or_blocks() -> None:
    assert called(sys.executable, PROGRAMS / "blocks_signals.py") == ["0 set()", ""] * 2


def test_a_process_that_used_it_ends_by_itself() -> None:
    code = (
        "import asyncio\n"
        "from grpo_tasks_code.sandbox import arun, run, run_tests\n"
        "print(run('print(1)').stdout, asyncio.run(arun('print(2)')).stdout, end='')\n"
        "print(run_tests('def f(n): return n', ['assert f(1) != 2']).passed)\n"
    )
    assert called(sys.executable, "-W", "error", "-c", code) == ["1", " 2", "1"]


def test_as_an_ordinary_user() -> None:
    statuses = "ok runtime_error timeout memory output_limit syntax_error"
    written = {"L3": "1", "L2": "", "L1": "1"}  # at L2 nothing can be written; of the others nothing is left
    expected = (
        line for name, told in written.items() for line in (f"{name} {statuses}", told, "[False, False]", "2", "False")
    )
    assert as_nobody("ordinary_user.py") == [*expected]


@pytest.mark.skipif(os.getuid() != 0, reason="is about root")
def test_roots_programs_are_not_root(sandbox: Sandbox) -> None:
    # On the host they are nobody. Where Python's library is open to root only, they open files as root, under Landlock.
    with ThreadPoolExecutor(1) as threads:
        future, started = running_program(sandbox, threads)
        (program,) = [each for each in started if each.uids().real != 0]
        assert program.uids() == program.gids() == (65534, 65534, 65534)
        status = Path(f"/proc/{program.pid}/status").read_text(encoding="ascii")
        fields = dict(line.split(":\t", 1) for line in status.splitlines())
        assert {int(fields[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {0}
        assert (fields["NoNewPrivs"], fields["Seccomp"], fields["Groups"].strip()) == ("1", "2", "")
        with contextlib.suppress(psutil.NoSuchProcess):
            program.kill()
        assert future.result(30).status == "killed"


def test_a_trainer_that_is_among_the_first_processes_of_a_container() -> None:
    printed = called(sys.executable, PROGRAMS / "first_process.py")
    assert printed == [f"{pid} L3 1" for pid in range(2, 6)]
