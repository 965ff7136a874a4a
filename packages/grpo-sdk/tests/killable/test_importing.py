"""A script that defines a task and uses it without a `__main__` guard must not start workers without end."""

import importlib
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest
from waiting import eventually

from grpo_sdk import KillablePool, Scorer, UserError, load_task
from grpo_sdk.killable.importing import importing, inside_worker, refuse_at_import, refuse_in_worker
from grpo_sdk.killable.worker import IN_WORKER_VARIABLE

TASK = (Path(__file__).parent / "programs" / "one_task.py").read_text()
USES = {
    "Scorer()": "print(Scorer(SPEC, workers=2).score(['1'], load_task(SPEC).rows()))",
    "the pool of 'mine' workers": (
        "load_task(SPEC)\n"
        "KillablePool('grpo_sdk.scoring.wire:make_handler', args=(SPEC,), name='mine', workers=2).map([b''], 1.0)"
    ),
}
IN_A_THREAD = """
def work():
    try:
        Scorer(SPEC)
    except Exception as error:
        print(error)
if "grpo_task_file" in __name__ and os.environ.get("GRPO_KILLABLE_WORKER"):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
"""
GUARDED = """
if __name__ == "__main__":
    with Scorer(SPEC, workers=2) as scorer:
        scorer.warm()
        print("ready", flush=True)
        threading.Event().wait(60)
"""
WHILE_IMPORTED = "runs while the task file {} is imported"


def script(folder: Path, use: str) -> Path:
    file = folder / "unguarded.py"
    file.write_text(TASK + use)
    return file


def imports(file: Path) -> list[int]:
    """The processes that imported a script."""
    return [int(line) for line in file.with_suffix(".imports").read_text().split()]


@pytest.mark.parametrize("what", USES)
def test_an_unguarded_script_ends_with_one_line_and_no_worker(tmp_path: Path, what: str) -> None:
    file = script(tmp_path, USES[what])
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, timeout=60)
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1
    assert f"{file}: {what} {WHILE_IMPORTED.format('unguarded.py')}" in last
    assert "if __name__ ==" in last and re.search(r"\(unguarded.py:\d+\)$", last)
    assert len(imports(file)) == 2  # the script, and the file as a task


def test_a_file_that_starts_work_in_a_thread_cannot_do_so_in_workers(tmp_path, capfd):
    file = script(tmp_path, IN_A_THREAD)
    with Scorer(f"{file}:one", workers=1) as scorer:
        scorer.warm()
    assert f"Scorer() {WHILE_IMPORTED.format('unguarded.py')}" in capfd.readouterr().err
    assert len(imports(file)) == 2


def test_a_guarded_script_runs_and_sigterm_ends_all_of_it(tmp_path: Path) -> None:
    file = script(tmp_path, GUARDED)
    process = subprocess.Popen([sys.executable, str(file)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    pids = {*imports(file)}
    assert len(pids) == 3  # the script (which is imported once more, as a task) and two workers
    process.send_signal(signal.SIGTERM)
    process.wait(20)
    process.stdout.close()
    assert eventually(lambda: not any(map(psutil.pid_exists, pids))), "a worker outlived the script"


def test_other_threads_may_work_while_a_file_is_imported() -> None:
    allowed: list[bool] = []

    def other() -> None:
        refuse_at_import("train()")
        allowed.append(True)

    with importing(Path("/x/mine.py")):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        with pytest.raises(UserError, match=WHILE_IMPORTED.format("mine.py")):
            refuse_at_import("train()")
    refuse_at_import("train()")
    assert allowed


@pytest.mark.parametrize(("name", "arguments"), [
    ("grpo_core.training.start:train", ()),
    ("grpo_core.training.resume:resume", ("run",)),
    ("grpo_core.training.warm_start:warm_start", ("math.echo", "out")),
    ("grpo_core.evaluation.evaluate:evaluate", ("math.echo", "tiny")),
    ("grpo_sdk.interop.trl:reward_funcs", ("math.echo",)),
    ("grpo_tasks_code.sandbox:run", ("print(1)",)),
])  # fmt: skip
def test_nothing_that_starts_processes_runs_while_a_file_is_imported(name: str, arguments: tuple[str, ...]) -> None:
    module, _, function = name.partition(":")
    with importing(Path("mine.py")), pytest.raises(UserError, match=WHILE_IMPORTED.format("mine.py")):
        getattr(importlib.import_module(module), function)(*arguments)


def test_runs_are_never_started_in_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_in_worker("train()")
    monkeypatch.setenv(IN_WORKER_VARIABLE, "1")
    assert inside_worker()
    with pytest.raises(UserError, match=r"train\(\) cannot run inside a process that scores completions"):
        refuse_in_worker("train()")
    with pytest.raises(UserError, match=r"Scorer\(\) cannot run inside .*BoundTask.score can"):
        Scorer("math.echo")


def test_a_pool_may_be_made_while_a_file_is_imported_and_used_later(tmp_path: Path) -> None:
    file = script(tmp_path, "POOL = KillablePool('killable_targets:echo')\n")
    assert load_task(f"{file}:one").rows()
    with importing(Path("mine.py")), KillablePool("killable_targets:echo") as pool, pytest.raises(UserError):
        pool.warm()
