"""`grpo runs --wandb`, with the installed wandb against a stand-in for its server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from wandb_server import WandBServer, node, wandb_server

KEY = "0123456789abcdef0123456789abcdef01234567"

Command = Callable[..., str]


@pytest.fixture
def server() -> Iterator[WandBServer]:
    pytest.importorskip("wandb", reason="the extra wandb")
    runs = [
        node(
            f"r{i}", summary={"reward": i / 10, "step": 3, "eval/math.a/solved_rate": 0.5}, task="math.a", model="tiny"
        )
        for i in range(30, 0, -1)
    ]
    runs[0] |= {"state": "running", "displayName": "evil\x1b[31m"}
    with wandb_server(runs) as server:
        server.history = {"reward": [(2, 0.5), (1, 0.25)]}
        yield server


@pytest.fixture
def grpo(server: WandBServer, tmp_path: Path) -> Command:
    """A process of its own: wandb keeps a session, and a service, for the whole process."""

    def call(*words: str, code: int = 0, key: str | None = KEY, url: str = server.url) -> str:
        hidden = [name for name in os.environ if name.startswith("WANDB_")]
        environment = {name: value for name, value in os.environ.items() if name not in hidden}
        environment |= {"HOME": str(tmp_path), "WANDB_BASE_URL": url, "COLUMNS": "300"}
        environment |= {"WANDB_API_KEY": key} if key else {}
        done = subprocess.run(
            [sys.executable, "-m", "grpo_core", "runs", *words],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        assert KEY not in done.stdout + done.stderr
        return done.stderr if code else done.stdout

    return call


def test_the_latest_runs_are_listed(grpo: Command, server: WandBServer) -> None:
    heading, *rows = [" ".join(line.split()) for line in grpo("--wandb", "us/sums", "--limit", "12").splitlines()]
    assert heading == "run state name reward solved task model started"
    assert len(rows) == 12
    assert rows[-1] == r"us/sums/r30 running evil\x1b[31m 3 0.5 math.a tiny 2026-11-20T10:00:00Z"
    assert rows[0].startswith("us/sums/r19 finished run of r19 1.9 0.5")
    (variables,) = (variables for query, variables in server.queries if "query Runs(" in query)
    assert (variables["order"], variables["perPage"]) == ("-created_at", 12)
    assert not list(Path.cwd().glob("wandb"))


def test_the_project_is_by_default_that_of_new_runs(grpo: Command, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("WANDB_PROJECT=sums\nWANDB_ENTITY=us\n")
    assert len(json.loads(grpo("--wandb", "--json"))) == 20


def test_one_run_is_shown(grpo: Command) -> None:
    shown = [" ".join(line.split()) for line in grpo("show", "us/sums/r5", "--wandb").splitlines()]
    assert shown[0] == "run us/sums/r5 run of r5 finished 2026-11-20T10:00:00Z"
    assert "reward ▁█ 0.25 0.5 0.25 0.5" in shown
    assert {"eval/math.a/solved_rate 0.5", "task math.a", "model tiny"} <= set(shown)
    facts = json.loads(grpo("show", "us/sums/r5", "--wandb", "--json"))
    assert (facts["history"], facts["metrics"]["reward"]) == ({"reward": [[1, 0.25], [2, 0.5]]}, 0.5)
    assert set(facts["settings"]) == {"task", "model"}


def test_mistakes(grpo: Command, server: WandBServer) -> None:
    without_key = grpo("--wandb", "us/sums", code=2, key=None)
    assert without_key.startswith("error: no key for W&B: run `wandb login`") and without_key.count("\n") == 1
    assert "W&B has no 'us/other'" in grpo("--wandb", "us/other", code=2)
    assert "W&B has no 'us/sums/r99'" in grpo("show", "us/sums/r99", "--wandb", code=2)
    assert "give ENTITY/PROJECT" in grpo("--wandb", "a/b/c", code=2)
    assert "--limit 3 is of --wandb" in grpo("--limit", "3", code=2)
    assert "leave out training_runs" in grpo("list", "training_runs", "--wandb", "us/sums", code=2)


def test_a_key_that_is_refused(grpo: Command, server: WandBServer) -> None:
    server.status = 401
    message = grpo("--wandb", "us/sums", code=2)
    assert message.count("\n") == 1 and "Run `wandb login`" in message


@pytest.mark.slow  # wandb tries for half a minute
def test_a_server_that_cannot_be_reached(grpo: Command) -> None:
    nobody = "http://127.0.0.1:9"
    assert f"W&B at {nobody} cannot be reached" in grpo("--wandb", "us/sums", code=1, url=nobody)
