"""An environment served by the released openenv, in an environment of its own."""

import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from environments import played

from grpo_sdk import Scorer, load_task

pytestmark = [pytest.mark.network, pytest.mark.peers, pytest.mark.timeout(900)]

OPENENV = "openenv==0.10.0"


@pytest.fixture(params=[64, 1])
def address(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An environment that allows so many connections."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    script = Path(__file__).with_name("released_server.py")
    python = ("uv", "run", "--no-project", "--isolated", "--python", "3.11", "--with", OPENENV, "python")
    clean = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    command = [*python, str(script), str(request.param)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=clean, cwd="/") as process:
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
