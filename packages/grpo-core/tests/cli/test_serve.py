"""`grpo serve` as a process: what it prints, who may connect, and how it ends."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

from grpo_core.cli import serve as command
from grpo_core.cli.main import main

SOON_S = 120.0

TASK = """
import time
from grpo_core import Row, Task, reward

def load(config) -> list[Row]:
    return [Row(id="a")]

@reward()
def slept(text):
    time.sleep(float(text))
    return 1.0

naps = Task("naps", load, lambda row: "how long?", lambda text: text, [slept], timeout_s=30.0)
"""


@contextmanager
def started(folder: Path, *options: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    (folder / "naps.py").write_text(TASK)
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # ignored in the background
        "from grpo_core.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, "serve", "./naps.py:naps", "--port", "0", "--json", *options],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        yield process, json.loads(line)
    finally:
        process.kill()
        process.communicate()


def nap(url: str, seconds: float) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=SOON_S)
    body = json.dumps({"row": "a", "completion": str(seconds)})
    with closing(connection):
        connection.request("POST", "/score", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, json.loads(response.read())


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_it_when_the_requests_at_hand_are_answered(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    with started(tmp_path, "--workers", "1") as (process, facts):
        assert facts["tasks"] == ["naps.naps"] and facts["pid"] == process.pid
        children = psutil.Process(process.pid).children(recursive=True)
        assert children
        answers = []
        thread = threading.Thread(target=lambda: answers.append(nap(facts["url"], 1.5)))
        thread.start()
        time.sleep(0.7)
        process.send_signal(number)
        assert process.wait(SOON_S) == code
        thread.join()
        assert answers[0][0] == 200 and answers[0][1]["score"] == 1.0
        assert not psutil.wait_procs(children, SOON_S)[1]


def test_the_grace_has_an_end(tmp_path: Path) -> None:
    with started(tmp_path, "--workers", "1", "--grace-s", "0.5") as (process, facts):
        children = psutil.Process(process.pid).children(recursive=True)
        answers = []
        thread = threading.Thread(target=lambda: answers.append(nap(facts["url"], 25)))
        thread.start()
        time.sleep(0.7)
        started_s = time.monotonic()
        process.terminate()
        assert process.wait(SOON_S) == 0
        assert time.monotonic() - started_s < 20
        thread.join()
        assert answers[0] == (503, {"error": "the server stops"})
        assert not psutil.wait_procs(children, SOON_S)[1]


def test_the_token_is_shown_nowhere(tmp_path: Path) -> None:
    with started(tmp_path, "--host", "0.0.0.0", GRPO_SERVE_TOKEN="hush-hush") as (process, facts):
        process.terminate()
        out, errors = process.communicate(timeout=SOON_S)
        assert "hush-hush" not in out + errors + json.dumps(facts)
        assert "travel unencrypted" in errors


def test_a_script_can_wait_for_the_line_that_names_the_address(tmp_path: Path) -> None:
    # Where python is not told to write at once, as in a container.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    process = subprocess.Popen(
        [sys.executable, "-m", "grpo_core", "serve", "core.qa", "--port", "0", "--workers", "1"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    )
    assert process.stdout is not None
    watchdog = threading.Timer(SOON_S, process.kill)
    watchdog.start()
    try:
        assert process.stdout.readline().startswith("serving core.qa on http://127.0.0.1:")
        assert process.poll() is None
    finally:
        watchdog.cancel()
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["math.arithmetik"], "Did you mean 'math.arithmetic'?"),
        (["core.qa", "--host", "0.0.0.0"], "needs a token"),
        (["core.qa", "--token-file", "missing"], "--token-file missing"),
        (["core.qa", "--ssl-keyfile", "key.pem"], "--ssl-keyfile needs --ssl-certfile"),
        (["core.qa", "--port", "70000"], "70000"),
        (["core.qa", "--host", "no.such.host.invalid"], "needs a token"),
        (["games.tictactoe?opponent=base", "--opponent-url", "here"], "write http://host:port/v1#model"),
    ],
)
def test_mistakes_are_told_in_a_line(
    arguments: list[str], why: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(command.TOKEN_VARIABLE, raising=False)
    assert main(["serve", *arguments]) == 2
    assert why in " ".join(capsys.readouterr().err.split())


def test_a_missing_extra_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "starlette" else found(name))
    assert main(["serve", "core.qa"]) == 2
    assert "pip install 'grpo-core[serve]'" in " ".join(capsys.readouterr().err.split())
