"""Every exit code is reached by a command, and documented."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

from grpo_core.errors import ExitCode

TASKS = """\
from grpo_core import Row, Task, reward

def load() -> list[Row]:
    return [Row(id="a", gold="1")]

@reward()
def exact(answer, row):
    return float(answer == row.gold)

@reward()
def broken(answer):
    raise OSError("the service is down")

good = Task("good", load, lambda row: "1 =", lambda text: text, [exact])
bad = Task("bad", load, lambda row: "1 =", lambda text: text, [broken])
"""


INTERRUPTIBLE = """\
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
runpy.run_module("grpo_core", run_name="__main__", alter_sys=True)
"""


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", INTERRUPTIBLE, *words]
    return subprocess.Popen(command, cwd=folder, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def test_every_exit_code_is_reached_by_a_command(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    (tmp_path / "texts.jsonl").write_text(json.dumps({"row": "a", "completion": "1"}) + "\n")
    reading = start(tmp_path, "explain", "./tasks.py:good", "--completion", "-")
    commands = {
        ExitCode.DONE: start(tmp_path, "explain", "./tasks.py:good"),
        ExitCode.FAILED: start(tmp_path, "explain", "./tasks.py:bad"),
        ExitCode.USER_MISTAKE: start(tmp_path, "explain", "./tasks.py:none"),
        ExitCode.ABSTENTION_LIMIT: start(tmp_path, "score", "./tasks.py:bad", "--file", "texts.jsonl"),
    }
    try:
        ended = {code: (*process.communicate(timeout=120), process.returncode) for code, process in commands.items()}
        reading.send_signal(signal.SIGINT)  # the others have ended, so it waits for its stdin by now
        _, error = reading.communicate(timeout=120)
    finally:
        for process in (reading, *commands.values()):
            process.kill()
            process.communicate()
    for code, (output, problem, returned) in ended.items():
        assert returned == code, output + problem
        assert "Traceback" not in problem
    assert (reading.returncode, "stopped: interrupted" in error) == (ExitCode.INTERRUPTED, True)
    assert {*commands, ExitCode.INTERRUPTED} == set(ExitCode)


def test_every_exit_code_is_documented() -> None:
    page = (Path(__file__).parents[4] / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    for code in ExitCode:
        assert f"| {int(code)} | {code.meaning} |" in page
