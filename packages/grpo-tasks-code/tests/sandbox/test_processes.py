"""The sandbox among processes: threads, forks, other users, deaths on either side, and what is left behind."""

from __future__ import annotations

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

import psutil
import pytest

import grpo_core
import grpo_tasks_code
from grpo_core import InfrastructureError, KillablePool
from grpo_tasks_code import sandboxed
from grpo_tasks_code.sandbox import Execution, Sandbox, SandboxUnavailableError
from grpo_tasks_code.sandbox.execution import Status
from grpo_tasks_code.sandbox.host import job
from grpo_tasks_code.sandbox.host.scheduling import Scheduling

SLOW_MACHINE_S = 60.0
LEVELS = ("L3", "L2")


_others: set[psutil.Process] = set()
"""Processes of this one that were there before the test: of sandboxes that other tests use."""


@pytest.fixture(autouse=True)
def remembered() -> None:
    _others.clear()
    _others.update(psutil.Process().children(recursive=True))


@pytest.fixture(params=LEVELS)
def sandbox(request: pytest.FixtureRequest, remembered: None) -> Iterator[Sandbox]:
    with Sandbox(request.param, workers=1) as sandbox:
        try:
            assert sandbox.level.name == request.param
        except SandboxUnavailableError as error:
            pytest.skip(str(error))
        yield sandbox


def prints_one(sandbox: Sandbox) -> bool:
    return sandbox.run("print(1)", timeout_s=SLOW_MACHINE_S).stdout == "1\n"


def eventually(condition: object, seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():  # type: ignore[operator]  # a function of nothing
            return True
        time.sleep(0.01)
    return False


def descendants(of: int | None = None) -> list[psutil.Process]:
    return [each for each in psutil.Process(of).children(recursive=True) if each not in _others]


def running_program(sandbox: Sandbox, results: list[Execution]) -> threading.Thread:
    """A thread that waits for a program without end, which runs."""
    assert prints_one(sandbox)  # its server is there
    before = {each.pid for each in descendants()}
    code = "import time; time.sleep(1000)"
    thread = threading.Thread(target=lambda: results.append(sandbox.run(code, timeout_s=900)), daemon=True)
    thread.start()
    assert eventually(lambda: any(each.pid not in before for each in descendants()))
    time.sleep(0.3)  # from the fork to its first line
    return thread


def test_starting_does_not_count(sandbox: Sandbox) -> None:
    assert prints_one(sandbox)
    servers = descendants()
    for server in servers:
        server.suspend()
    # They go on when the program's limit is over twice; its clock begins when its process is ready.
    threading.Timer(2.0, lambda: [server.resume() for server in servers]).start()
    execution = sandbox.run("print(1)", timeout_s=1.0)
    assert (execution.status, execution.stdout) == ("ok", "1\n")
    assert execution.wall_s < 1.0


@pytest.fixture
def starving(sandbox: Sandbox) -> Iterator[Sandbox]:
    """One whose programs share a processor with many others that always want it."""
    assert prints_one(sandbox)
    processors = os.sched_getaffinity(0)
    processor = min(processors)
    servers = descendants()
    spin = f"import os; os.sched_setaffinity(0, {{{processor}}})\nwhile True: pass"
    hogs = [subprocess.Popen([sys.executable, "-S", "-c", spin], start_new_session=True) for _ in range(8)]
    try:
        os.sched_setaffinity(0, {processor})  # servers that are started meanwhile share it, too
        for server in servers:
            server.cpu_affinity([processor])
        yield sandbox
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
        os.sched_setaffinity(0, processors)
        for server in descendants():
            server.cpu_affinity(list(processors))


def test_a_program_that_others_keep_from_running_is_not_at_fault(starving: Sandbox) -> None:
    computes = "import time\nwhile time.process_time() < 0.15: pass\ndef f(n): return n\nprint(1)\n"
    execution = starving.run(computes, timeout_s=0.3)
    assert (execution.status, execution.stdout) == ("ok", "1\n"), execution.stderr
    assert starving.run_tests(computes, ["assert f(1) == 1"], timeout_s=0.3).statuses == ["passed"]


def test_sleep_is_no_excuse_on_a_busy_machine(starving: Sandbox) -> None:
    assert starving.run("import time; time.sleep(600)", timeout_s=1.5).status == "timeout"


class Counted:
    """What the kernel tells of each program: seconds on the processor, and waiting for one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cpu_s: float, delay_s: float) -> None:
        self.programs: set[int] = set()
        self._found = Scheduling(cpu_s, delay_s)
        monkeypatch.setattr("grpo_tasks_code.sandbox.host.process.scheduling_of", self)

    def __call__(self, pid: int) -> Scheduling:
        self.programs.add(pid)
        return self._found


def test_time_that_others_took_is_given_back(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch, 0.0, 30.0)
    execution = sandbox.run("import time; time.sleep(0.6); print(1)", timeout_s=0.4)
    assert (execution.status, execution.stdout, len(counted.programs)) == ("ok", "1\n", 1)


def test_a_starved_program_is_run_twice(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grpo_tasks_code.sandbox.arguments.PATIENCE_S", 0.0)
    counted = Counted(monkeypatch, 0.0, 900.0)
    execution = sandbox.run("while True: pass", timeout_s=0.2)
    assert execution.status == "sandbox_error" and "the machine is too busy" in execution.stderr
    assert len(counted.programs) == 2
    with pytest.raises(InfrastructureError, match="too busy"):
        sandboxed._check(execution)


@pytest.mark.parametrize("code", ["while True: pass", "def f(n):\n    while True: pass"])
@pytest.mark.parametrize("test", ["assert f(1) == 1", "assert f(1) >= 1"])
def test_a_starved_program_under_test_is_run_twice(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, code: str, test: str
) -> None:
    monkeypatch.setattr("grpo_tasks_code.sandbox.arguments.PATIENCE_S", 0.0)
    counted = Counted(monkeypatch, 0.0, 900.0)
    result = sandbox.run_tests(code, [test], timeout_s=0.2)
    assert result.statuses == ["sandbox_error"] and "the machine is too busy" in result.reasons[0]
    assert len(counted.programs) == 2


def test_an_end_that_a_busy_server_tells_late_is_no_timeout(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    assert prints_one(sandbox)
    kill = job.Job.kill

    def late(self: job.Job, why: Status) -> None:
        time.sleep(1.0)  # the server has seen its end by then, and its word lies unread
        kill(self, why)

    monkeypatch.setattr(job.Job, "kill", late)
    assert sandbox.run("import time; time.sleep(0.4); print(1)", timeout_s=0.2).status == "ok"
    computes = "import time\nwhile time.process_time() < 0.8: pass"
    assert sandbox.run(computes, timeout_s=0.2).status == "timeout"


def test_threads_that_keep_one_another_waiting_use_up_the_programs_time(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    Counted(monkeypatch, 0.5, 900.0)
    assert sandbox.run("while True: pass", timeout_s=0.4).status == "timeout"


def test_a_caller_that_looks_late_finds_what_was_done_in_time(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert prints_one(sandbox)
    begin = job.Job._begin

    def slow(self: job.Job) -> None:  # as where the trainer's other threads hold the interpreter
        begin(self)
        time.sleep(0.4)

    monkeypatch.setattr(job.Job, "_begin", slow)
    assert sandbox.run("print(1)", timeout_s=0.2).status == "ok"


STARTS_THREADS_WITHOUT_END = """
import os, threading, time
threading.stack_size(32768)
started = 0
print("begun", flush=True)
while True:
    try:
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
        started += 1
    except RuntimeError:
        if started: print(started, flush=True)
        started = 0
        time.sleep(0.001)
"""

STARTS_FIFTY_THREADS = """
import threading
for _ in range(4):
    done = threading.Barrier(51)
    for _ in range(50): threading.Thread(target=done.wait).start()
    done.wait()
print("fine")
"""


@pytest.mark.parametrize("level", LEVELS)
def test_a_program_cannot_take_the_threads_of_its_neighbours(level: str) -> None:
    with Sandbox(level, workers=2) as sandbox, ThreadPoolExecutor(1) as threads:
        try:
            assert prints_one(sandbox)
        except SandboxUnavailableError as error:
            pytest.skip(str(error))
        before = {each.pid for each in descendants()}
        greedy = threads.submit(sandbox.run, STARTS_THREADS_WITHOUT_END, timeout_s=4)
        most = 0

        def is_full() -> bool:
            nonlocal most
            found = [each.num_threads() for each in descendants() if each.pid not in before and each.is_running()]
            most = max([most, *found])
            return most >= 200

        assert eventually(is_full)
        neighbour = sandbox.run(STARTS_FIFTY_THREADS, timeout_s=SLOW_MACHINE_S)
        assert (neighbour.status, neighbour.stdout) == ("ok", "fine\n"), neighbour
        assert greedy.result().status == "timeout"
        assert sum(map(int, greedy.result().stdout.split()[1:])) <= 512


def test_a_forgotten_sandbox_ends_its_servers() -> None:
    sandbox = Sandbox(workers=1)
    assert prints_one(sandbox)
    family = descendants()
    assert family
    del sandbox
    gc.collect()
    assert eventually(lambda: not any(each.is_running() for each in family))


def test_signals_that_the_caller_ignores_or_blocks() -> None:
    code = (
        "import signal\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())\n"
        "from grpo_tasks_code.sandbox import Sandbox\n"
        "for level in ('L3', 'L2'):\n"
        "    with Sandbox(level) as sandbox:\n"
        "        print(sandbox.run('from signal import *; print(getsignal(17), pthread_sigmask(0, ()))').stdout)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["0", "set()"] * 2, done.stderr


@pytest.mark.parametrize("which", [0, -2])  # the launcher; the server itself, at L2 the same
def test_a_server_that_is_killed_costs_the_run_in_flight(sandbox: Sandbox, which: int) -> None:
    assert prints_one(sandbox)
    results: list[Execution] = []
    thread = running_program(sandbox, results)
    family = [each for each in descendants() if each.status() != psutil.STATUS_ZOMBIE]
    family[which].kill()
    thread.join(30)
    (execution,) = results
    assert execution.status == "sandbox_error"
    assert "died" in execution.stderr.splitlines()[-1]
    assert eventually(lambda: not any(each.is_running() for each in family))
    assert prints_one(sandbox)


def test_a_server_that_is_killed_while_idle_costs_nothing(sandbox: Sandbox) -> None:
    for _ in range(3):
        assert prints_one(sandbox)
        for process in descendants():
            process.kill()
        assert prints_one(sandbox)
    for process in descendants():
        process.kill()
    assert sandbox.run_tests("def f(n): return n", ["assert f(1) == 1", "assert f(1) != 2"]).passed == 2


PROGRAMS = (
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


def check_nothing_is_left(sandbox: Sandbox, runs: int) -> None:
    def one(index: int) -> None:
        code = PROGRAMS[index % len(PROGRAMS)]
        if index % 10 == 9:
            sandbox.run_tests(code, ["assert f(1) == 1", "assert f(1) != 2"])
        else:
            assert sandbox.run(code, timeout_s=SLOW_MACHINE_S).status != "sandbox_error"

    for index in range(20):  # the judges' server too
        one(index)
    descriptors, processes = len(os.listdir("/proc/self/fd")), len(descendants())
    for index in range(runs):
        one(index)
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert eventually(lambda: len(descendants()) == processes)
    assert not [each for each in descendants() if each.status() == psutil.STATUS_ZOMBIE]


def test_nothing_is_left_of_300_runs(sandbox: Sandbox) -> None:
    check_nothing_is_left(sandbox, 300)


@pytest.mark.slow
def test_nothing_is_left_of_10000_runs(sandbox: Sandbox) -> None:
    check_nothing_is_left(sandbox, 10_000)


def test_closing_leaves_no_process_and_starts_again(sandbox: Sandbox) -> None:
    assert prints_one(sandbox)
    family = descendants()
    sandbox.close()
    sandbox.close()
    assert eventually(lambda: not any(each.is_running() for each in family))
    assert prints_one(sandbox)


def test_from_many_threads() -> None:
    with Sandbox(workers=2) as sandbox, ThreadPoolExecutor(8) as threads:
        printed = threads.map(lambda n: sandbox.run(f"print({n})", timeout_s=SLOW_MACHINE_S).stdout, range(40))
        assert list(printed) == [f"{n}\n" for n in range(40)]


def test_a_server_outlives_the_thread_that_needed_it_first(sandbox: Sandbox) -> None:
    # Linux kills a child when the thread that started it ends, if the child asked to die with its parent.
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(prints_one(sandbox)))
    thread.start()
    thread.join()
    family = descendants()
    time.sleep(0.2)
    assert prints_one(sandbox)
    assert found == [True]
    assert [each.pid for each in descendants()][:1] == [each.pid for each in family][:1]


def test_an_interrupt_ends_the_program(sandbox: Sandbox) -> None:
    assert prints_one(sandbox)
    timer = threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT])
    old = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            sandbox.run("while True: pass", timeout_s=900)
    finally:
        signal.signal(signal.SIGINT, old)
    assert prints_one(sandbox)


def _in_child(sandbox: Sandbox, results: object) -> None:
    results.put(prints_one(sandbox))  # type: ignore[attr-defined]  # a multiprocessing queue


def test_in_a_forked_child_while_the_parent_runs_a_program(sandbox: Sandbox) -> None:
    assert prints_one(sandbox)
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    executions: list[Execution] = []
    thread = threading.Thread(
        target=lambda: executions.append(sandbox.run("import time; time.sleep(1); print(2)", timeout_s=SLOW_MACHINE_S))
    )
    thread.start()
    time.sleep(0.2)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # Python 3.12 warns of a fork beside threads: that is tested
        child = context.Process(target=_in_child, args=(sandbox, results))
        child.start()
    assert results.get(timeout=60) is True
    child.join(30)
    assert child.exitcode == 0
    thread.join(60)
    assert executions[0].stdout == "2\n"
    assert prints_one(sandbox)


@pytest.mark.parametrize("level", LEVELS)
def test_nothing_outlives_a_process_that_is_killed(level: str) -> None:
    code = (
        "import threading, time\n"
        "from grpo_tasks_code.sandbox import Sandbox\n"
        f"sandbox = Sandbox({level!r}, workers=2)\n"
        "sandbox.run('pass', timeout_s=60)\n"
        "for _ in range(2):\n"
        "    threading.Thread(target=sandbox.run, args=('while True: pass',), kwargs={'timeout_s': 900}).start()\n"
        "time.sleep(900)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        try:
            assert eventually(lambda: len(descendants(process.pid)) >= 4, SLOW_MACHINE_S)  # two servers, two programs
            family = descendants(process.pid)
        finally:
            process.kill()
            process.wait()
        assert eventually(lambda: not any(each.is_running() for each in family))


def test_a_process_that_used_it_ends_by_itself() -> None:
    code = (
        "import asyncio\n"
        "from grpo_tasks_code.sandbox import arun, run, run_tests\n"
        "print(run('print(1)', timeout_s=60).stdout, asyncio.run(arun('print(2)', timeout_s=60)).stdout, end='')\n"
        "print(run_tests('def f(n): return n', ['assert f(1) != 2']).passed)\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr, done.returncode) == ("1\n 2\n1\n", "", 0)


def test_inside_a_scoring_worker_there_is_one_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nested_sandbox.py").write_text(
        "from grpo_tasks_code.sandbox import default_executor, run, run_tests\n"
        "def factory():\n"
        "    return handle\n"
        "def handle(payload):\n"
        "    passed = run_tests('def f(n): return n', ['assert f(1) == 1']).passed\n"
        "    return f'{run(payload.decode(), timeout_s=60).stdout}{passed} {default_executor().workers}'.encode()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with KillablePool("nested_sandbox:factory", workers=2) as workers:
        assert [each.value for each in workers.map([b"print(1)", b"print(2)"], 120.0)] == [b"1\n1 1", b"2\n1 1"]
        family = [each for each in descendants() if each.status() != psutil.STATUS_ZOMBIE]
    assert eventually(lambda: not any(each.is_running() for each in family))


def test_a_killed_scoring_worker_leaves_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hanging_sandbox.py").write_text(
        "from grpo_tasks_code.sandbox import run\n"
        "def factory():\n"
        "    run('pass', timeout_s=60)\n"
        "    return lambda payload: run('while True: pass', timeout_s=900).status.encode()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with KillablePool("hanging_sandbox:factory", workers=1) as workers:
        workers.warm()
        family = descendants()
        (outcome,) = workers.map([b""], 1.0)
        assert outcome.status == "timeout"
        programs = [each for each in family if each.is_running()]
        assert eventually(lambda: not any(each.is_running() for each in programs if each not in descendants()))
    assert eventually(lambda: not any(each.is_running() for each in family))


def interpreter_for_everyone() -> str:
    """One of this version that any user can start: this one may lie in root's home."""
    own = os.path.realpath(sys.executable)
    for path in (own, "/usr/bin/python{}.{}".format(*sys.version_info[:2])):
        is_open = all(each.stat().st_mode & stat.S_IXOTH for each in [Path(path), *Path(path).parents] if each.exists())
        if is_open and os.path.exists(path):
            return path
    pytest.skip(f"no interpreter of this version is open to other users: {own} is not")


def as_nobody(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    sources = [str(Path(package.__file__ or "").parents[1]) for package in (grpo_core, grpo_tasks_code)]
    return subprocess.run(
        [interpreter_for_everyone(), "-B", "-W", "error", "-c", code],
        env={"PYTHONPATH": os.pathsep.join([*sources, sysconfig.get_path("purelib")]), **environment},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=120,
        **({"user": 65534, "group": 65534, "extra_groups": []} if os.getuid() == 0 else {}),
    )


USE = """
import os, tempfile
from grpo_tasks_code.sandbox import Sandbox, level, run, run_tests
assert os.getuid() != 0
codes = ["print(1)", "1 / 0", "while True: pass", "bytearray(1 << 40)", "print('x' * 2_000_000)", "x = "]
print(level(allow_weak=True).name, [run(code, timeout_s=0.5, allow_weak=True).status for code in codes])
print(run("import os; open('x', 'w').write('1'); print(open('x').read())", allow_weak=True).stdout.strip())
print(run("import os; print(os.path.exists('x'))", allow_weak=True).stdout.strip())
print(run_tests("def f(n): return n", ["assert f(1) == 1", "assert f(1) != 2"], allow_weak=True).passed)
folder = tempfile.gettempdir()
before = set(os.listdir(folder))
"""


@pytest.mark.parametrize("level", ["L3", "L2", "L1"])
def test_as_an_ordinary_user(level: str, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    done = as_nobody(USE, GRPO_SANDBOX_LEVEL=level)
    assert done.returncode == 0, done.stderr
    statuses = ["ok", "runtime_error", "timeout", "memory", "output_limit", "syntax_error"]
    expected = [f"{level} {statuses}", "" if level == "L2" else "1", "False", "2"]  # at L2 nothing can be written
    assert done.stdout.splitlines() == expected


def test_what_the_weak_level_writes_is_removed() -> None:
    code = (
        "import glob, tempfile, time\n"
        "from grpo_tasks_code.sandbox import Sandbox\n"
        "pattern = tempfile.gettempdir() + '/grpo-sandbox-*'\n"
        "before = set(glob.glob(pattern))\n"
        "with Sandbox('L1', allow_weak=True) as sandbox:\n"
        '    print(sandbox.run(\'import os; open("left", "w"); os.mkdir("d"); print(os.getcwd())\').status)\n'
        "    print(sandbox.run('import os; print(os.listdir(\".\"))').stdout.strip())\n"
        "    own = set(glob.glob(pattern)) - before\n"
        "import os\n"
        "print(any(os.path.exists(each) and os.stat(each).st_uid == os.getuid() for each in own))\n"
    )
    done = as_nobody(code)
    assert (done.stdout.splitlines(), done.stderr) == (["ok", "[]", "False"], "")


@pytest.mark.skipif(os.getuid() != 0, reason="is about root")
@pytest.mark.parametrize("level", LEVELS)
def test_roots_programs_are_not_root(level: str) -> None:
    # On the host they are nobody. Where Python's library is open to root only, they open files as root, under Landlock.
    with Sandbox(level, workers=1) as sandbox:
        results: list[Execution] = []
        thread = running_program(sandbox, results)
        (program,) = [each for each in descendants(os.getpid()) if each.uids().real != 0]
        assert program.uids() == (65534, 65534, 65534)
        assert program.gids() == (65534, 65534, 65534)
        status = Path(f"/proc/{program.pid}/status").read_text(encoding="ascii")
        fields = dict(line.split(":\t", 1) for line in status.splitlines())
        assert {int(fields[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {0}
        assert (fields["NoNewPrivs"], fields["Seccomp"], fields["Groups"].strip()) == ("1", "2", "")
        with contextlib.suppress(psutil.NoSuchProcess):
            program.kill()
        thread.join(30)
        assert results[0].status == "killed"


IN_A_CONTAINER = """
import os, platform, signal, sys
from pathlib import Path
from grpo_tasks_code.sandbox import Sandbox
from grpo_tasks_code.sandbox.inside import kernel
from grpo_tasks_code.sandbox.inside.syscalls import required

uid, gid = os.getuid(), os.getgid()
flags = kernel.CLONE_NEWPID | kernel.CLONE_NEWNS | (kernel.CLONE_NEWUSER if uid else 0)
try:
    kernel.syscall(required("unshare", platform.machine()), flags, what="unshare")
except OSError as error:
    sys.exit(f"skip: {error}")
if uid:
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
first = os.fork()
if first:
    os._exit(os.waitstatus_to_exitcode(os.waitpid(first, 0)[1]))
assert os.getpid() == 1
kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
kernel.mount("proc", "/proc", "proc", 0)
for pid in range(2, 6):
    Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
    trainer = os.fork()
    if trainer == 0:
        assert os.getpid() == pid
        with Sandbox("L3") as sandbox:
            print(pid, sandbox.level.name, sandbox.run("print(1)", timeout_s=60).stdout, end="", flush=True)
        os._exit(0)
    os.waitpid(trainer, 0)
"""


def test_a_trainer_that_is_among_the_first_processes_of_a_container() -> None:
    # The program's own number in its namespace is then the trainer's in the container's.
    with Sandbox("L3", workers=1) as sandbox:
        try:
            assert sandbox.level.name == "L3"
        except SandboxUnavailableError as error:
            pytest.skip(str(error))
    done = subprocess.run([sys.executable, "-c", IN_A_CONTAINER], capture_output=True, text=True, timeout=200)
    if done.stderr.startswith("skip"):
        pytest.skip(done.stderr)
    assert done.stdout.splitlines() == [f"{pid} L3 1" for pid in range(2, 6)], done.stderr
