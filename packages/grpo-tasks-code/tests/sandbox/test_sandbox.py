"""What a run tells of a program: `run`, `run_many`, `arun`, `level`."""

import asyncio
import os
import subprocess
import sys
import time

import pytest

from grpo_sdk import InfrastructureError, UserError
from grpo_tasks_code.sandbox import Execution, Policy, Sandbox, SandboxUnavailableError, run, run_many
from grpo_tasks_code.sandbox.arguments import MAX_PROGRAM_BYTES
from grpo_tasks_code.sandbox.errors import ServerError
from grpo_tasks_code.sandbox.host import levels
from grpo_tasks_code.sandbox.host.attack import withstands
from grpo_tasks_code.sandbox.host.process import ServerProcess

SLOW_MACHINE_S = 30.0
"""A limit that only a program without end reaches, however busy the machine."""


def test_the_hash_seed_is_that_of_the_machine_state() -> None:
    program = "print(hash('a'), list({'a', 'b', 'c', 'd', 'e'}))"
    prints = [[run(program, machine_state=state).stdout for _ in range(2)] for state in (0, 1, 2)]
    assert all(first == second for first, second in prints) and len({first for first, _ in prints}) == 3


def test_a_program_that_prints(sandbox: Sandbox) -> None:
    execution = sandbox.run("import sys\nprint(input()[::-1])\nprint('e', file=sys.stderr)", "abc\n", SLOW_MACHINE_S)
    assert execution == Execution("ok", "cba\n", "e\n", execution.cpu_s, execution.wall_s, sandbox.level.name)
    assert 0 <= execution.cpu_s < 5
    assert 0 <= execution.wall_s < SLOW_MACHINE_S


@pytest.mark.parametrize(("code", "status"), [
    ("import sys; sys.exit(256)", "ok"),  # Python's own exit code is a byte
    ("print('a')\nif:\n", "syntax_error"),
    ("x = '\ud800'", "syntax_error"),
    ("(" * 5000 + ")" * 5000, "syntax_error"),
    ("x = " + "-" * 50_000 + "1", "syntax_error"),
    ("# -*- coding: nonsense -*-\nprint(1)", "ok"),  # it is text already
    ("raise MemoryError", "memory"),
    ("print(1)\n" * (MAX_PROGRAM_BYTES // 9 + 1), "denied"),
])  # fmt: skip
def test_how_programs_end(sandbox: Sandbox, code: str, status: str) -> None:
    execution = sandbox.run(code, timeout_s=SLOW_MACHINE_S)
    assert execution.status == status, execution


@pytest.mark.parametrize("code", ["while True: pass", "import time; time.sleep(60)"])
def test_time_out_of_the_clock(sandbox: Sandbox, code: str) -> None:
    execution = sandbox.run(f"print(input(), flush=True)\n{code}", "begun\n", 0.4)
    assert (execution.status, execution.stdout) == ("timeout", "begun\n")
    assert 0.4 <= execution.wall_s < 0.4 + 10


def test_waiting_for_a_turn_does_not_count(sandbox: Sandbox) -> None:
    # 6 programs of 0.3 s, two at a time, each with a limit of 0.8 s: the last begins after 0.6 s.
    executions = sandbox.run_many(["import time; time.sleep(0.3)"] * 6, timeout_s=0.8, workers=2)
    assert [each.status for each in executions] == ["ok"] * 6


def test_memory_is_what_was_asked_for(sandbox: Sandbox) -> None:
    code = "data = bytearray({} << 20); data[::4096] = b'x' * len(data[::4096]); print(len(data) >> 20)"
    assert sandbox.run(code.format(100), timeout_s=SLOW_MACHINE_S, memory_mib=128).stdout == "100\n"
    assert sandbox.run(code.format(140), timeout_s=SLOW_MACHINE_S, memory_mib=128).status == "memory"


@pytest.mark.parametrize(("code", "limit", "status", "stdout"), [
    ("print('x' * 99)", 100, "ok", "x" * 99 + "\n"),
    ("print('x' * 100)", 100, "output_limit", "x" * 100),
    ("while True: print('x' * 99)", 200, "output_limit", ("x" * 99 + "\n") * 2),
    ("pass", 0, "ok", ""),
    ("import os; os.write(1, b'a\\xffb')", 100, "ok", "a\ufffdb"),
])  # fmt: skip
def test_output_is_kept_up_to_the_limit(sandbox: Sandbox, code: str, limit: int, status: str, stdout: str) -> None:
    execution = sandbox.run(code, timeout_s=SLOW_MACHINE_S, output_limit_bytes=limit)
    assert (execution.status, execution.stdout) == (status, stdout)


def test_large_input(sandbox: Sandbox) -> None:
    execution = sandbox.run("import sys; print(len(sys.stdin.read()))", "é" * 3_000_000, SLOW_MACHINE_S)
    assert execution.stdout == "3000000\n"


def test_processor_time_is_the_programs_own(sandbox: Sandbox) -> None:
    execution = sandbox.run("import time\nwhile time.process_time() < 0.3: pass", timeout_s=SLOW_MACHINE_S)
    assert 0.2 < execution.cpu_s < 1.0  # what the process used before its first line is in neither


def test_random_numbers_differ(sandbox: Sandbox) -> None:
    code = "import random, os, uuid; print(random.random(), os.urandom(4), uuid.uuid4())"
    assert len({each.stdout for each in sandbox.run_many([code] * 4, timeout_s=SLOW_MACHINE_S)}) == 4


def test_asyncio_goes_on_meanwhile(sandbox: Sandbox) -> None:
    async def main() -> list[str]:
        code = "import time; time.sleep(0.3); print(input())"
        running = asyncio.gather(*(sandbox.arun(code, f"{n}\n", SLOW_MACHINE_S) for n in range(4)))
        for _ in range(5):
            await asyncio.sleep(0.01)
            assert not running.done()
        return [each.stdout for each in await running]

    assert asyncio.run(main()) == ["0\n", "1\n", "2\n", "3\n"]


def test_a_cancelled_task_ends_its_program(sandbox: Sandbox) -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await sandbox.arun("while True: pass", timeout_s=60)

    begin = time.monotonic()
    asyncio.run(main())
    assert sandbox.run_many(["print(1)"] * 2, timeout_s=SLOW_MACHINE_S)[1].stdout == "1\n"  # both servers are free
    assert time.monotonic() - begin < 30


@pytest.mark.parametrize("arguments", [
    {"code": b"print(1)"},
    {"stdin": 3},
    {"timeout_s": 0},
    {"timeout_s": float("nan")},
    {"memory_mib": 0},
    {"memory_mib": 1 << 40},
    {"output_limit_bytes": -1},
    {"policy": "strict"},
    {"machine_state": 8},
])  # fmt: skip
def test_arguments_that_cannot_be_meant(arguments: dict[str, object]) -> None:
    with pytest.raises(UserError, match=next(iter(arguments))):
        run(**{"code": "pass", **arguments})


def test_workers_that_cannot_be_meant() -> None:
    with pytest.raises(UserError, match="workers=0"):
        Sandbox(workers=0)
    with pytest.raises(UserError, match="workers=-1"):
        run_many(["pass"], workers=-1)


def test_a_level_can_be_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPO_SANDBOX_LEVEL", "L2")
    with Sandbox() as sandbox:
        assert sandbox.run("print(1)").level == sandbox.level.name == "L2"
        assert "asked for" in sandbox.level.reason
    with Sandbox("L3") as sandbox:  # an argument comes before the environment
        assert sandbox.level.name == "L3"
    monkeypatch.setenv("GRPO_SANDBOX_LEVEL", "L4")
    with pytest.raises(UserError, match="'L4': must be one of L3, L2, L1"):
        Sandbox().run("pass")


def test_it_fails_closed() -> None:
    with pytest.raises(SandboxUnavailableError, match=r"L1 rlimits: not allowed.*GRPO_SANDBOX_ALLOW_WEAK=1") as caught:
        Sandbox("L1").run("print(1)")
    assert isinstance(caught.value, InfrastructureError)


@pytest.mark.skipif(os.getuid() != 0, reason="is about root")
def test_the_weak_level_is_refused_to_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPO_SANDBOX_ALLOW_WEAK", "1")
    with pytest.raises(SandboxUnavailableError, match="refused to root"):
        Sandbox("L1").run("print(1)")


def test_a_level_that_does_not_withstand_attack_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def falls(server: object) -> None:
        raise ServerError("attacks of its own succeed: reads_host_file")

    monkeypatch.setattr(levels, "withstands", falls)
    with pytest.raises(SandboxUnavailableError, match=r"L3 namespaces.*L2 landlock.*L1 rlimits") as caught:
        Sandbox(allow_weak=os.getuid() == 0).run("print(1)")
    assert str(caught.value).count("reads_host_file") == 2


def test_the_self_attack_sees_what_a_level_lets_through() -> None:
    server = ServerProcess("L1")  # which lets almost everything through
    try:
        with pytest.raises(ServerError, match=r"lists_host_folder.*reads_host_file.*starts_process") as caught:
            withstands(server)
    finally:
        server.close()
    for attack in ("opens_network_socket", "sends_to_host_socket", "writes_host_file", "changes_mode", "reads_users"):
        assert attack in str(caught.value)


def test_importing_it_loads_nothing_heavy_and_starts_nothing() -> None:
    code = (
        "import sys, threading, grpo_tasks_code.sandbox as sandbox\n"
        "heavy = {'torch', 'asyncio', 'RestrictedPython', 'multiprocessing', 'http.client'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "assert threading.active_count() == 1\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("policy", [None, "restricted"])
@pytest.mark.parametrize("code", ["x = [" + "1," * 400_000 + "]", "x = '''" + "a\n" * 400_000 + "'''"])
def test_memory_that_ends_while_it_is_compiled_is_the_programs_failure(
    sandbox: Sandbox, code: str, policy: Policy | None
) -> None:
    # Under some limits compile() raises MemoryError, under others SystemError, and some kill Python.
    for memory_mib in (1, 2, 3, 8):
        execution = sandbox.run(code, "", SLOW_MACHINE_S, memory_mib, policy=policy)
        assert execution.status in ("ok", "syntax_error", "denied", "memory", "killed"), execution
