"""Released clients of other projects, each in an environment of its own, on a server of tasks."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from recorded_shop import SPEC
from scoring_tasks import sums
from served import serving
from small_games import GUESS, HEAP
from wheels import call

from grpo_sdk import load_task
from grpo_sdk.serve.server import TaskServer

pytestmark = [pytest.mark.network, pytest.mark.peers, pytest.mark.timeout(900)]

CLIENTS = Path(__file__).parents[3] / "grpo-core" / "tests" / "support" / "clients"
OPENENV, OPENRLHF = "openenv==0.10.0", "openrlhf==0.11.2"


@pytest.fixture(scope="module")
def server() -> Iterator[TaskServer]:
    with serving(sums, GUESS, HEAP, load_task(SPEC)) as server:
        yield server


def client(name: str, package: str, *arguments: str) -> Any:
    """What a script of `clients` prints, in an environment with a package."""
    python = ("uv", "run", "--no-project", "--isolated", "--python", "3.11", "--with", package, "python")
    return json.loads(call(*python, str(CLIENTS / name), *arguments, cwd=CLIENTS).stdout.splitlines()[-1])


def test_openenv(server: TaskServer) -> None:
    assert client("openenv_client.py", OPENENV, server.address) == {
        "single": {"reward": 2.0, "done": True, "steps": 1},
        "unscored": {"reward": None, "done": True, "steps": 1},
        "turns": {"reward": 0.0, "done": True, "steps": 3},
        "tools": {
            "tools": ["undescribed", "look_up", "put_aside", "order", "weigh", "haggle", "wait"],
            "result": "3 coins",
            "reward": 1.0,
            "done": True,
        },
        "game": {"reward": 1.0, "done": True, "rewards": {"first": -1.0, "second": 1.0}},
    }


def test_openrlhf(server: TaskServer, tmp_path: Path) -> None:
    call("uv", "pip", "install", "--no-deps", "--python", "3.11", "--target", str(tmp_path), OPENRLHF, cwd=CLIENTS)
    answers = client("openrlhf_client.py", "aiohttp", str(tmp_path), server.address)
    assert answers["right"]["rewards"] == answers["right"]["scores"] == [2.0]
    assert answers["right"]["extra_logs"]["solved"] == [1.0]
    assert "Request error for 5 times" in answers["unscored"]
