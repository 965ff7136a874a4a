"""Tasksets of verifiers with tools; tests/test_foreign_tasks.py runs this in an environment that has it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verifiers")

from environments import called
from local_endpoint import Reply, serving, streamed_chat
from trained_tools import check_that_a_run_trains

from grpo_sdk import Scorer, UserError, load_task

HERE = Path(__file__).parent

SPEC = "verifiers.looking_up?split_by=none"


@pytest.fixture(autouse=True)
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of tasksets that can be imported, also by the processes that verifiers starts."""
    monkeypatch.syspath_prepend(str(HERE))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(HERE)]))
    return tmp_path


@pytest.fixture
def scorer(site: Path) -> Iterator[Scorer]:
    with Scorer(SPEC, workers=1, tool_workers=1, timeout_s=5) as scorer:
        yield scorer


def look(place: Any, **arguments: Any) -> tuple[str, dict[str, Any]]:
    return "shelf_look", {"place": place, **arguments}


def test_the_tools_have_the_names_of_the_harness() -> None:
    tools = {tool.name: tool for tool in load_task(SPEC).task.all_tools()}
    assert list(tools) == ["add", "shelf_draw", "shelf_look"]
    assert tools["shelf_look"].parameters["required"] == ["place"]
    assert "calls tools in verifiers' way" in load_task(SPEC).conditions["not used"]


def test_an_episode_has_tools_and_a_state_of_its_own(scorer: Scorer) -> None:
    first, second = scorer.task.rows()[3:5]
    calls, score, _ = called(scorer, first, [[look("3"), ("add", {"a": 1, "b": 2})], [look(3, kind="x")]])
    assert [[call.result for call in turn] for turn in calls] == [["w3", "3"], ["w3"]]
    assert score.parts == {"found": 0.0, "few_looks": 1.0, "calls": 3.0, "n_calls": 3.0, "valid_calls": 1.0}
    calls, score, _ = called(scorer, second, [[look(3)], []])
    assert calls[0][0].result == "w4" and score.parts["few_looks"] == 1.0, "the state is not the first one's"


def test_what_a_tool_says_of_a_mistake_is_read(scorer: Scorer) -> None:
    row = scorer.task.rows()[3]
    (calls,), score, _ = called(scorer, row, [[look(7), look([]), ("shelf_see", {})]])
    assert calls[0].result == "Error executing tool look: there is no place 7" and not calls[0].ok
    assert "valid integer" in calls[1].result and calls[2].result.startswith("no tool 'shelf_see'")
    assert score.parts["few_looks"] == 0.0, "what a tool that raises has changed is not kept, as in verifiers"


@pytest.mark.parametrize(("call", "why"), [
    (look(8), "tool shelf_look(): no answer within 5 s"),
    (look(9), "tool shelf_look(): its worker exited with status 3"),
    (("shelf_draw", {}), "tool shelf_draw() returned an image, and the policy reads text only"),
])  # fmt: skip
def test_what_is_not_the_policys_fault_abstains(scorer: Scorer, call: tuple[str, dict[str, Any]], why: str) -> None:
    _, score, _ = called(scorer, scorer.task.rows()[3], [[call]])
    assert score.abstained and why in score.why


REFUSED = {
    "stops": ("    @vf.stop\n    async def enough(self, trace: vf.Trace) -> bool: ...\n\n", "@vf.stop enough"),
    "remote": ("", "its tools are at http://127.0.0.1:1/mcp"),
    "boxed": ("", "its tools need a container (runtime docker)"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_needs_verifiers_itself_is_refused_by_name(site: Path, name: str) -> None:
    body, message = REFUSED[name]
    made = {"remote": "url='http://127.0.0.1:1/mcp'", "boxed": "runtime=vf.DockerConfig()"}.get(name, "")
    (site / f"{name}.py").write_text(
        f"import verifiers.v1 as vf\nfrom looking_up import Shelf\n\nclass Own(vf.Task[vf.TaskData]):\n{body}"
        "    @vf.reward\n    async def ok(self, trace) -> float:\n        return 1.0\n\n"
        f"    @classmethod\n    def toolsets(cls, config):\n        return [Shelf(vf.ToolsetConfig({made}))]\n\n"
        "class Tasks(vf.Taskset[Own, vf.TasksetConfig]):\n    def load(self):\n"
        "        yield Own(vf.TaskData(prompt='say yes'), self.config.task)\n\n__all__ = ['Tasks']\n"
    )
    with pytest.raises(UserError) as caught:
        load_task(f"verifiers.{name}").rows()
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_run_trains_on_the_tools(tmp_path: Path) -> None:
    calls = [look(3), ("add", {"a": 1, "b": 2})]
    check_that_a_run_trains(f"{SPEC}&chat=false&max_turns=3", calls, str(tmp_path))


EPISODES: dict[str, list[tuple[str, list[tuple[str, dict[str, Any]]]]]] = {
    "row-0": [("w0", [])],
    "row-1": [("I look.", [look(3)]), ("w1", [])],
    "row-2": [("", [look(1), look(2)]), ("", [look(3)]), ("w2", [])],
    "row-3": [("", [look(7)]), ("", [("add", {"a": 2, "b": 3}), look(3, kind="x")]), ("5", [])],
    "row-4": [("", [look("x"), ("add", {"a": 1, "b": 1})]), ("w4", [])],
}
"""Row -> turns, each a text and its calls."""


@pytest.mark.network
@pytest.mark.peers
@pytest.mark.timeout(900)
def test_verifiers_own_harness_gives_the_same_scores(scorer: Scorer, tmp_path: Path) -> None:
    def respond(request: dict[str, Any]) -> Reply:
        asked = next(message["content"] for message in request["messages"] if message["role"] == "user")
        turn = sum(message["role"] == "assistant" for message in request["messages"])
        text, calls = EPISODES[f"row-{asked.removeprefix('Find word ').rstrip('.')}"][turn]
        return streamed_chat(text, [{"name": name, "arguments": given} for name, given in calls])

    program = Path(sys.executable).with_name("vf-eval")
    with serving(respond) as server:
        client = ("--client.base-url", server.url, "--client.api-key-var", "NO_KEY", "--no-push")
        agent = ("--env.agent.runtime.type", "subprocess", "--env.agent.harness.id", "null")
        command = (program, "looking_up", "--model", "m", "-n", str(len(EPISODES)), *agent, *client)
        variables = {**os.environ, "NO_KEY": "none", "NO_PROXY": "127.0.0.1"}
        done = subprocess.run(command, cwd=tmp_path, env=variables, text=True, capture_output=True, check=False)
    assert not done.returncode, done.stderr[-2000:]
    (file,) = tmp_path.glob("outputs/*/traces.jsonl")
    for episode in map(json.loads, file.read_text().splitlines()):
        trace, name = episode["traces"][0], episode["task"]["data"]["id"]
        assert not trace["errors"] and set(trace["rewards"]) == {"found", "few_looks"}, trace["errors"]
        theirs = {part: reward["score"] for part, reward in trace["rewards"].items()} | trace["metrics"]
        row = next(row for row in scorer.task.rows() if row.id == name)
        turns = EPISODES[name]
        answered, score, _ = called(scorer, row, [calls for _, calls in turns], [text for text, _ in turns])
        assert {part: score.parts[part] for part in theirs} == theirs, (name, theirs, score)
        shown = [node["message"]["content"] for node in trace["nodes"] if node["message"]["role"] == "tool"]
        assert [call.result for turn in answered for call in turn] == shown
