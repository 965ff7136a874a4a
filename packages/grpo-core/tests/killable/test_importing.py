"""A script that defines a task and uses it without a `__main__` guard must not start workers without end."""

from __future__ import annotations

import importlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from grpo_core import KillablePool, Scorer, UserError, load_task
from grpo_core.killable.importing import importing, inside_worker, refuse_at_import, refuse_in_worker
from grpo_core.killable.worker import IN_WORKER_VARIABLE

TASK = """
import os, threading
from pathlib import Path

from grpo_core import Row, Scorer, Task, load_task, reward

with Path(__file__).with_suffix(".imports").open("a") as log:
    log.write(f"{os.getpid()}\\n")

def load(config) -> list[Row]:
    return [Row(id="a", gold="1")]

@reward()
def right(answer):
    return 1.0

one = Task("one", load, lambda row: "p", lambda text, row: text, [right])
SPEC = f"{__file__}:one"
"""

USES = {
    "Scorer()": "print(Scorer(SPEC, workers=2).score(['1'], load_task(SPEC).rows()))",
    "train()": (
        "from grpo_core import train\nfrom grpo_core.config.models import RunConfig\n"
        "train(RunConfig(task=SPEC, model='tiny', output_dir='{folder}'))"
    ),
    "the pool of 'mine' workers": (
        "from grpo_core import KillablePool\nload_task(SPEC)\n"
        "KillablePool('grpo_core.scoring.wire:make_handler', args=(SPEC,), name='mine', workers=2).map([b''], 1.0)"
    ),
}


def script(folder: Path, use: str) -> Path:
    file = folder / "unguarded.py"
    file.write_text(TASK + use.replace("{folder}", str(folder / "runs")) + "\n")
    return file


@pytest.mark.parametrize(
    "what", [pytest.param(what, marks=pytest.mark.slow if what == "train()" else ()) for what in USES]
)
def test_an_unguarded_script_ends_with_one_line_and_no_worker(tmp_path: Path, what: str) -> None:
    file = script(tmp_path, USES[what])
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, timeout=60)
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1
    assert f"{file}: {what} runs while the task file unguarded.py is imported" in last
    assert "if __name__ ==" in last and re.search(r"\(unguarded.py:\d+\)$", last)
    assert len(file.with_suffix(".imports").read_text().splitlines()) == 2  # the script, and the file as a task
    assert not (tmp_path / "runs").exists()


def test_a_file_that_starts_work_in_a_thread_cannot_do_so_in_workers(tmp_path: Path) -> None:
    file = script(
        tmp_path,
        "if 'grpo_task_file' in __name__:\n"
        "    def work():\n"
        "        try:\n            Scorer(SPEC)\n"
        "        except Exception as error:\n            print(error)\n"
        "    if os.environ.get('GRPO_KILLABLE_WORKER'):\n"
        "        thread = threading.Thread(target=work)\n        thread.start()\n        thread.join()\n",
    )
    command = f"from grpo_core import Scorer\nwith Scorer({str(file)!r} + ':one', workers=1) as s:\n    s.warm()\n"
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "Scorer() runs while the task file unguarded.py is imported" in done.stderr
    assert len(file.with_suffix(".imports").read_text().splitlines()) == 2


def test_a_guarded_script_runs_and_sigterm_ends_all_of_it(tmp_path: Path) -> None:
    guarded = (
        "if __name__ == '__main__':\n"
        "    import time\n"
        "    with Scorer(SPEC, workers=2) as scorer:\n"
        "        scorer.warm()\n"
        "        print('ready', flush=True)\n"
        "        time.sleep(60)\n"
    )
    file = script(tmp_path, guarded)
    process = subprocess.Popen([sys.executable, str(file)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    pids = {int(line) for line in file.with_suffix(".imports").read_text().split()}
    assert len(pids) == 3  # the script (which is imported once more, as a task) and two workers
    process.send_signal(signal.SIGTERM)
    process.wait(20)
    process.stdout.close()
    deadline = time.monotonic() + 20
    while any(map(is_alive, pids)):
        assert time.monotonic() < deadline, "a worker outlived the script"
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_other_threads_may_work_while_a_file_is_imported() -> None:
    refused: list[str] = []

    def other() -> None:
        try:
            refuse_at_import("train()")
        except UserError as error:
            refused.append(str(error))

    with importing(Path("/x/mine.py")):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        with pytest.raises(UserError, match=r"train\(\) runs while the task file mine.py is imported"):
            refuse_at_import("train()")
    refuse_at_import("train()")
    assert not refused


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("grpo_core.training.trainer:train", ()),
        ("grpo_core.training.resume:resume", ("run",)),
        ("grpo_core.training.warm_start:warm_start", ("math.echo", "out")),
        ("grpo_core.evaluation.evaluate:evaluate", ("math.echo", "tiny")),
        ("grpo_core.evaluation.runs:evaluate_run", ("run",)),
        ("grpo_core.interop.trl:reward_funcs", ("math.echo",)),
        ("grpo_tasks_code.sandbox:run", ("print(1)",)),
    ],
)
def test_nothing_that_starts_processes_runs_while_a_file_is_imported(name: str, arguments: tuple[str, ...]) -> None:
    module, _, function = name.partition(":")
    with importing(Path("mine.py")), pytest.raises(UserError, match=r"runs while the task file mine.py is imported"):
        getattr(importlib.import_module(module), function)(*arguments)


def test_a_sandbox_that_is_running_is_refused_too() -> None:
    run = pytest.importorskip("grpo_tasks_code.sandbox").run
    assert run("print(1)").stdout == "1\n"
    with importing(Path("mine.py")), pytest.raises(UserError, match=r"the sandbox runs while the task file mine\.py"):
        run("print(1)")


def test_runs_are_never_started_in_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_in_worker("train()")
    monkeypatch.setenv(IN_WORKER_VARIABLE, "1")
    assert inside_worker()
    with pytest.raises(UserError, match=r"train\(\) cannot run inside a process that scores completions"):
        refuse_in_worker("train()")
    with pytest.raises(UserError, match=r"Scorer\(\) cannot run inside .*BoundTask.score can"):
        Scorer("math.echo")


def test_a_pool_may_be_made_while_a_file_is_imported_and_used_later(tmp_path: Path) -> None:
    file = script(tmp_path, "from grpo_core import KillablePool\nPOOL = KillablePool('killable_targets:echo')\n")
    assert load_task(f"{file}:one").rows()
    with importing(Path("mine.py")), KillablePool("killable_targets:echo") as pool, pytest.raises(UserError):
        pool.warm()
