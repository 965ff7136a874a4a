"""Released MCP servers, each as its registry installs it: a model that calls one of its tools trains two steps.

pytest -m peers tests/test_mcp_servers.py
"""

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from wheels import call

from grpo_sdk import Scorer
from grpo_sdk.scoring.tool_workers import ToolSession
from grpo_sdk.task.tools.calls import Reading, read_tool_turns

pytestmark = [pytest.mark.network, pytest.mark.peers, pytest.mark.timeout(900)]

TASKS = Path(__file__).parent / "programs" / "mcp_tasks.py"

SERVERS = {
    "FILES": ("@modelcontextprotocol/server-filesystem@2026.8.31", "mcp-server-filesystem", "{folder}"),
    "MEMORY": ("@modelcontextprotocol/server-memory@2026.8.31", "mcp-server-memory", ""),
    "TIME": ("mcp-server-time==2026.10.19", "mcp-server-time", ""),
    "GIT": ("mcp-server-git==2026.10.19", "mcp-server-git", ""),
}
"""Task -> package of npm or PyPI, its command, an argument."""


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Installs a server; the name of its task."""
    package, command, argument = SERVERS[request.param]
    if package.startswith("@"):
        call("npm", "install", "--silent", "--prefix", str(tmp_path), package, cwd=tmp_path)
        program = tmp_path / "node_modules" / ".bin" / command
    else:
        call("uv", "venv", "--python", sys.executable, str(tmp_path / "venv"), cwd=tmp_path)
        call("uv", "pip", "install", "--python", str(tmp_path / "venv" / "bin" / "python"), package, cwd=tmp_path)
        program = tmp_path / "venv" / "bin" / command
    monkeypatch.setenv("MCP_COMMAND", f"{program} {argument}".strip())
    return str(request.param)


def test_a_model_trains_on_a_server_and_sixteen_sessions_share_nothing(server: str, tmp_path: Path) -> None:
    own = shutil.copy(TASKS, tmp_path)  # this process knows a file by its path, and the file its server by a variable
    task, model, out = f"{own}:{server}", tmp_path / "model", tmp_path / "run"
    steps = ("--max-steps", "400", "--batch-size", "4", "--learning-rate", "0.003", "--eval-size", "1")
    grpo("warm-start", "--task", task, "--model", "tiny", "--out", str(model), "--quiet", *steps)
    sizes = ("trainer.prompts_per_step=1", "trainer.num_generations=4", "eval.at_start=false", "eval.at_end=false")
    grpo("run", "--task", task, "--model", str(model), "--max-steps", "2", "--output-dir", str(out), "--quiet", *sizes)
    (lines,) = out.glob("*/logs/rollouts.jsonl")
    rollouts = [json.loads(line) for line in lines.read_text().splitlines()]
    assert len(rollouts) == 8
    assert all(each["status"] == "scored" for each in rollouts)
    assert any(each["score"]["value"] == 1.0 for each in rollouts)
    with Scorer(task, workers=1, tool_workers=16) as scorer:
        (row,) = scorer.task.rows()
        (turn, *_), _ = read_tool_turns(row.gold or "")

        def played(session: ToolSession) -> tuple[str, ...]:
            assert not session.begin().result().fault
            state = session.answer((), "", Reading("", calls=tuple(each.asked for each in turn.calls)), "").result()
            assert not state.fault, state.why
            return tuple(each.result for each in state.moves[-1].calls)

        with ThreadPoolExecutor(16) as threads:
            results = set(threads.map(played, [scorer.session(row) for _ in range(16)]))
    assert len(results) == 1


def grpo(*words: str) -> None:
    program = Path(sys.executable).with_name("grpo")
    done = subprocess.run([program, *words], capture_output=True, text=True, env=os.environ, check=False)
    assert done.returncode == 0, done.stderr
