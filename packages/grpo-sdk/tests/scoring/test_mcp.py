"""Tools of MCP servers, by the official SDK's own server in a process of its own."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from waiting import eventually

from grpo_sdk import Environment, Scorer, Task, TaskConfig, UserError, load_task, mcp, reward, tool
from grpo_sdk.scoring.tool_workers import ToolSession
from grpo_sdk.task.row import Row
from grpo_sdk.task.tools.calls import Call, Reading, ToolCall, ToolTurn, write_tool_turns
from grpo_sdk.task.tools.session import Session
from grpo_sdk.task.turns import TurnState

FOLDER = Path(__file__).parent
TASKS, SERVER = FOLDER / "notes_tasks.py", FOLDER / "programs" / "notes_server.py"
ROW = Row(id="1")


@pytest.fixture(scope="module")
def notes() -> Iterator[Scorer]:
    with Scorer(f"{TASKS}:NOTES", workers=1, tool_workers=1) as scorer:
        yield scorer


def begun(scorer: Scorer) -> ToolSession:
    session = scorer.session(ROW)
    state = session.begin().result()
    assert not state.fault, state.why
    return session


def turn(session: ToolSession, *calls: ToolCall) -> TurnState:
    return session.answer((), "said", Reading("said", calls=calls), "prompt").result()


def answer(session: ToolSession, name: str, /, **arguments: Any) -> Call:
    state = turn(session, ToolCall(name, arguments))
    assert not state.fault, state.why
    (call,) = state.moves[-1].calls
    return call


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def test_the_tools_are_the_servers_and_the_tasks_own(notes: Scorer) -> None:
    tools = {tool.name: tool for tool in notes.task.task.all_tools()}
    assert list(tools)[-1] == "length"
    assert tools["write"].spec["function"]["parameters"]["required"] == ["text"]
    assert tools["odd_name_with_marks"].description == ""


def test_an_episode_has_a_session_and_a_folder_of_its_own(notes: Scorer) -> None:
    first, second = begun(notes), begun(notes)
    assert answer(first, "write", text="a", times="2").result == "2"
    assert answer(second, "read").result == '{"result": []}', "a list without elements has no blocks"
    assert answer(second, "write", text="b").result == "1"
    assert answer(first, "read").result == "a\na"
    assert answer(first, "files").result == "letter.txt"
    for session in (first, second):  # whose folders have one name for the policy
        assert answer(session, "odd_name_with_marks").result == "/episode"
        assert answer(session, "keep", path="/episode/a", text="").result == "/episode/a is kept"
        assert "/episode/b/c" in answer(session, "keep", path="/episode/b/c", text="").result
    assert answer(first, "length", text="abc").result == "3"


def test_a_call_that_the_server_refuses_is_a_result(notes: Scorer) -> None:
    session = begun(notes)
    failed = answer(session, "fail", text="no such note")
    assert "no such note" in failed.result
    assert failed.ran and not failed.ok
    assert "no such item" in answer(session, "refuse").result
    assert answer(session, "where").result == "/episode"
    assert "ask" in answer(session, "ask").result  # its model, which no policy's server has
    assert not answer(session, "write", text=3).ok
    surplus = answer(session, "write", text="a", tims=2)
    assert not surplus.ran
    assert "did you mean 'times'" in surplus.result
    assert "missing argument 'text'" in answer(session, "write").result
    huge = answer(session, "huge").result
    assert huge.endswith("10,000 of 10,000,000 characters]")
    assert answer(session, "stray").ok
    assert answer(session, "write", text="still there").result == "1"


@pytest.mark.parametrize(("name", "fault", "why"), [
    ("image", "reward", "tool image() returned a block of type 'image'"),
    ("not_a_number", "reward", "tool not_a_number() returned what MCP doesn't have"),
    ("leave", "infrastructure", "good bye"),
])  # fmt: skip
def test_what_no_policy_can_be_told_abstains(notes: Scorer, name: str, fault: str, why: str) -> None:
    state = turn(begun(notes), ToolCall(name, {}))
    assert (state.fault, why in state.why) == (fault, True), state.why


def test_a_call_that_hangs_ends_its_server() -> None:
    with Scorer(f"{TASKS}:NOTES", workers=1, tool_workers=1, timeout_s=3) as scorer:
        session = begun(scorer)
        child = int(answer(session, "stray").result)
        state = turn(session, ToolCall("hang", {}))
        assert state.fault == "timeout"
        assert "tool hang()" in state.why
        assert eventually(lambda: not psutil.pid_exists(child))


def test_an_episode_with_the_path_of_its_folder_is_scored_as_it_is_and_repeated_later(notes: Scorer) -> None:
    session = begun(notes)
    asked = {"write": {"text": "a"}, "keep": {"path": "/episode/x/y", "text": ""}, "odd_name_with_marks": {}}
    state = turn(session, *(ToolCall(name, arguments) for name, arguments in asked.items()))
    wrote, *others = state.moves[-1].calls
    assert [each.ok for each in (wrote, *others)] == [True, False, True]
    text, wrong = (
        write_tool_turns([ToolTurn("said", (first, *others)), ToolTurn("done")])
        for first in (wrote, replace(wrote, result="7"))
    )
    assert session.score(text).result().value == 3.0
    score, abstained = notes.score([text, wrong], [ROW, ROW])
    assert score.value == 3.0 and abstained.abstained
    assert "write() of turn 1 gave '1', not '7'" in abstained.why


def notes_of(server: Any, **options: Any) -> Task:
    return replace(load_task(f"{TASKS}:PLAIN").task, tools=mcp(server, **options))


@pytest.mark.parametrize(
    ("server", "options", "why"),
    [
        ([sys.executable, "-c", "import time; time.sleep(60)"], {"start_s": 1}, "did not answer within 1 s"),
        ([sys.executable, "-c", "raise SystemExit('no ' + 'licence')"], {}, "no licence"),
        ([sys.executable, str(SERVER), "--empty"], {}, "has no tools"),
        ("no-such-command --here", {}, "no-such-command"),
        ([sys.executable, str(SERVER)], {"only": ["wirte"]}, r"no tool 'wirte'.*'write'"),
        ([sys.executable, str(SERVER)], {"env": ["NO_SUCH_KEY"]}, "NO_SUCH_KEY"),
    ],
)
def test_a_server_that_cannot_be_asked_is_refused_with_what_it_said(server: Any, options: Any, why: str) -> None:
    with pytest.raises(UserError, match=why):
        Scorer(notes_of(server, **options), workers=1).close()


def test_a_long_result_with_the_path_is_cut_at_one_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Lister(Environment):
        def reset(self, row: Row, folder: Path) -> None:
            self.folder = folder

        @tool
        def walk(self) -> str:
            return "\n".join(f"{self.folder}/{place}" for place in range(2000))

    @reward()
    def paid() -> float:
        return 1.0

    task = Task("walks", lambda: [ROW], lambda row: "", lambda text: text, [paid], environment=Lister, max_turns=2)
    results = []
    for root in (tmp_path, tmp_path / "deeper"):
        root.mkdir(exist_ok=True)
        monkeypatch.setenv("GRPO_EPISODES", str(root))
        session = Session(task, TaskConfig(), ROW)
        results += [call.result for call in session.answer([ToolCall("walk", {})])]
        session.close()
    assert results[0] == results[1] and results[0].startswith("/episode/0\n/episode/1")


def test_no_folder_is_left_of_episodes_that_nobody_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Scorer(f"{TASKS}:NOTES", workers=1, tool_workers=2) as scorer:
        sessions = [begun(scorer) for _ in range(2)]
        assert all(answer(session, "write", text="a").ok for session in sessions)
        assert [*tmp_path.glob("grpo-episodes-*/grpo-episode-*")]
    assert not [*tmp_path.iterdir()]


def test_a_server_that_lists_other_tools_than_before_abstains(tmp_path: Path) -> None:
    program = tmp_path / "server.py"
    program.write_text(SERVER.read_text())
    with Scorer(notes_of([sys.executable, str(program)]), workers=1, tool_workers=1) as scorer:
        assert answer(begun(scorer), "write", text="a").ok
        program.write_text(SERVER.read_text().replace("Write a note;", "Take a note;"))
        state = scorer.session(ROW).begin().result()
        assert state.fault == "infrastructure"
        assert "another write() than at the run's beginning" in state.why


@pytest.fixture
def address() -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, SERVER, str(port)], stderr=subprocess.DEVNULL)
    assert eventually(lambda: is_open(port))
    yield f"http://127.0.0.1:{port}/mcp"
    process.kill()
    process.wait()


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_server_with_an_address(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTES_KEY", "secret")
    task = notes_of(address, headers={"Authorization": "Bearer {NOTES_KEY}"})
    with pytest.raises(UserError, match="it said: HTTP 404 Not Found"):
        notes_of(address + "/none").all_tools()
    with Scorer(task, workers=1, tool_workers=2) as scorer:
        session = begun(scorer)
        assert answer(session, "write", text="a").ok
        assert answer(session, "key").result == "Bearer secret"
        assert answer(session, "huge").ok
        state = turn(session, ToolCall("leave", {}))
        assert state.fault == "infrastructure"
        assert "MCP server" in state.why


def test_nothing_stays_when_the_run_is_killed(tmp_path: Path) -> None:
    program = [sys.executable, str(FOLDER / "programs" / "play_notes.py"), str(TASKS)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        child = int(json.loads(run.stdout.readline())["child"])
        mine = [each.pid for each in psutil.Process(run.pid).children(recursive=True)]
        assert any(str(SERVER) in _words(psutil.Process(pid)) for pid in mine)
        run.kill()
    assert eventually(lambda: not any(psutil.pid_exists(pid) for pid in (*mine, child)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"server": ""}, "must be a command or an address"),
        ({"server": "http://127.0.0.1:1/mcp", "env": ["A"]}, "has no environment"),
        ({"server": "server", "headers": {"A": "b"}}, "takes no headers"),
        ({"server": "server", "only": "read"}, "list of texts"),
        ({"server": "server", "env": {"A": None}}, "list of texts"),
        ({"server": "http://127.0.0.1:1/mcp", "headers": {"A": 1}}, "a text for each name"),
        ({"server": "echo 'a"}, "is no command: No closing quotation"),
        ({"server": b"server"}, "must be a command, as a text"),
        ({"server": None}, "must be a command, as a text"),
        ({"server": "server", "start_s": "5"}, "finite time above 0"),
        ({"server": Path("server"), "only": []}, "leaves none of its tools"),
        ({"server": "server", "start_s": 0}, "finite time above 0"),
    ],
)
def test_what_cannot_be_meant_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        mcp(**options)
