"""`grpo serve` as a process: what it prints, who may connect, and how it ends."""

import http.client
import importlib.util
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

from grpo_sdk.cli.main import main

SOON_S = 120.0
NAPS = f"{Path(__file__).parent}/programs/naps.py:naps"

START = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # ignored in the background
    "from grpo_sdk.cli.main import main; sys.exit(main(sys.argv[1:]))"
)


@contextmanager
def started(*options: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """A server and what its first line says, which a script gets also where Python is not told to write at once."""
    here = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    process = subprocess.Popen(
        [sys.executable, "-c", START, "serve", NAPS, "--port", "0", "--json", "--workers", "1", *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=here | environment,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        yield process, json.loads(line)
    finally:
        process.kill()
        process.communicate()


def nap(url: str, seconds: float, answers: list[tuple[int, Any]]) -> None:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=SOON_S)
    body = json.dumps({"row": "a", "completion": str(seconds)})
    with closing(connection):
        connection.request("POST", "/score", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        answers.append((response.status, json.loads(response.read())))


@pytest.mark.parametrize(("number", "seconds", "options", "code", "status"), [
    (signal.SIGTERM, 1.5, (), 0, 200),
    (signal.SIGINT, 1.5, (), 130, 200),
    (signal.SIGTERM, 25, ("--grace-s", "0.5"), 0, 503),  # the grace has an end
])  # fmt: skip
def test_a_signal_ends_it_when_the_requests_at_hand_are_answered(
    number: signal.Signals, seconds: float, options: tuple[str, ...], code: int, status: int
) -> None:
    with started(*options) as (process, facts):
        assert facts["tasks"] == ["naps.naps"] and facts["pid"] == process.pid
        children = psutil.Process(process.pid).children(recursive=True)
        assert children
        answers: list[tuple[int, Any]] = []
        thread = threading.Thread(target=nap, args=(facts["url"], seconds, answers))
        thread.start()
        time.sleep(0.7)
        began = time.monotonic()
        process.send_signal(number)
        assert process.wait(SOON_S) == code and time.monotonic() - began < 20
        thread.join()
        ((found, answer),) = answers
        assert found == status
        assert answer["score"] == 1.0 if status == 200 else answer == {"error": "the server stops"}
        assert not psutil.wait_procs(children, SOON_S)[1]


def test_the_token_is_shown_nowhere() -> None:
    with started("--host", "0.0.0.0", GRPO_SERVE_TOKEN="hush-hush") as (process, facts):
        workers = psutil.Process(process.pid).children(recursive=True)
        assert workers and not any("GRPO_SERVE_TOKEN" in worker.environ() for worker in workers)
        process.terminate()
        out, errors = process.communicate(timeout=SOON_S)
        assert "hush-hush" not in out + errors + json.dumps(facts)
        assert "travel unencrypted" in errors


def test_a_missing_extra_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "starlette" else found(name))
    assert main(["serve", "core.qa"]) == 2
    said = "error: grpo serve needs the package starlette, which is not installed: pip install 'grpo-sdk[serve]'."
    assert said in " ".join(capsys.readouterr().err.split())
