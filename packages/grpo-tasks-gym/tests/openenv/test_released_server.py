"""An environment served by the released openenv, in an environment of its own."""

import json
import os
import random
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from environments import called, played

from grpo_sdk import BoundTask, Scorer, load_task

pytestmark = [pytest.mark.network, pytest.mark.peers, pytest.mark.timeout(900)]

OPENENV = "openenv==0.10.0"


@pytest.fixture(params=[64, 1])
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    """An environment that allows so many connections."""
    with served("guess", str(request.param)) as address:
        yield address


def python(*arguments: str) -> dict[str, Any]:
    """How released_server.py is started with openenv."""
    server = Path(__file__).with_name("released_server.py")
    python = ("uv", "run", "--no-project", "--isolated", "--python", "3.11", "--with", OPENENV, "python", server)
    clean = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return {"args": [*python, *arguments], "env": clean, "cwd": "/"}


@contextmanager
def served(*arguments: str) -> Iterator[str]:
    with subprocess.Popen(**python(*arguments), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        process.terminate()


def test_episodes_of_the_released_server_earn_what_it_says(address: str) -> None:
    task = load_task(f"openenv.remote?url={address}", size=8)
    row = task.rows()[0]
    seed = int(row.id.removeprefix("seed-"))
    assert task.prompt(row) == f"Game {seed}. Guess a number from 0 to 9."
    right = str(random.Random(seed).randrange(10))
    wrong = str((int(right) + 1) % 10)
    with Scorer(task, workers=1) as scorer:
        _, scores = played(scorer, row, [[right], [wrong, right], [wrong, wrong, right], [wrong] * 3, ["crash"]])
    assert [score.value for score in scores] == [1.0, 1.0, 1.0, -1.0, None]
    assert [score.solved for score in scores] == [True, True, True, False, False]
    assert "EXECUTION_ERROR: the environment has a bug" in scores[-1].why


LOOK = ("is_above", {"number": 4})
PLAYED: list[list[tuple[str, dict[str, Any]]]] = [
    [],
    [LOOK],
    [LOOK, LOOK, ("guess", {"number": 3})],
    [("is_above", {"number": 98}), ("guess", {"number": 5})],
    [("is_above", {"number": "x"})],
    *[[("guess", {"number": number})] for number in range(10)],
]
"""Calls of episodes of the first row, one a turn."""

ABSTAINS = {
    "NaN": ([("guess", {"number": 97})], "no reward, or NaN"),
    "missing": ([("guess", {"number": 96})], "no reward, or NaN"),
    "late": ([("is_above", {"number": 99})], "no answer within 2 s"),
    "image": ([("draw", {})], "returned a block of type 'image'"),
}


def tools(address: str, **options: Any) -> BoundTask:
    options = {"observation": "metadata.question", "timeout_s": 2, "size": 8, **options}
    return load_task(f"openenv.remote?actions=tools&url={quote(address, safe='')}", **options)


def test_calls_earn_what_the_released_client_sums() -> None:
    with served("tools", "64") as address:
        task = tools(address)
        row = task.rows()[0]
        seed = int(row.id.removeprefix("seed-"))
        assert task.prompt(row) == f"Game {seed}: which number from 0 to 9?"
        episodes = json.dumps([[seed, calls] for calls in PLAYED])
        peer = subprocess.run(**python("play", address, episodes), check=True, stdout=subprocess.PIPE, text=True)
        with Scorer(task, workers=1, tool_workers=2) as scorer:
            for calls, (value, texts) in zip(PLAYED, json.loads(peer.stdout), strict=True):
                answered, score, _ = called(scorer, row, [[call] for call in calls])
                assert score.value == value, (calls, score.why)
                results = [call.result if call.ok else None for turn in answered for call in turn]
                assert results == texts
            for calls, why in ABSTAINS.values():
                score = called(scorer, row, [[call] for call in calls])[1]
                assert score.fault and why in score.why
            assert called(scorer, row, [[LOOK]])[1].value == -0.125, "other episodes go on"
