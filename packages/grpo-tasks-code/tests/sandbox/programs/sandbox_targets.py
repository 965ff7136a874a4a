"""Targets of scoring workers that use the sandbox."""

from collections.abc import Callable

from grpo_tasks_code.sandbox import default_executor, run, run_tests


def nested() -> Callable[[bytes], bytes]:
    def handle(payload: bytes) -> bytes:
        passed = run_tests("def f(n): return n", ["assert f(1) == 1"]).passed
        return f"{run(payload.decode()).stdout}{passed} {default_executor().workers}".encode()

    return handle


def hanging() -> Callable[[bytes], bytes]:
    run("pass")
    return lambda payload: run("while True: pass", timeout_s=900).status.encode()
