"""Episodes by OpenEnv's protocol: over a WebSocket, as its client plays them, and over HTTP."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from group_tasks import words
from local_endpoint import completion
from local_endpoint import serving as endpoint
from recorded_shop import EPISODES, SPEC
from scoring_tasks import guess, sums
from served import ask, refused, serving
from small_games import GUESS, HEAP
from tool_laws import results_of, sent
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect

from grpo_sdk import load_task
from grpo_sdk.serve import Bounds
from grpo_sdk.serve.server import TaskServer
from grpo_sdk.task.game import game_task
from grpo_sdk.task.tools.tool import listed_tools

SUMS, GUESSES, GAME = "/scoring_tasks.sums", "/small_games.guess", "/python.heap"


@pytest.fixture(scope="module")
def server() -> Iterator[TaskServer]:
    with serving(sums, GUESS, HEAP, words, guess, timeout_s=1.0) as server:
        yield server


class Socket:
    """A client that sends a message and waits for the answer, as OpenEnv's does."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    def send(self, kind: str, data: Any = None) -> dict[str, Any]:
        self.connection.send(json.dumps({"type": kind} if data is None else {"type": kind, "data": data}))
        answer: dict[str, Any] = json.loads(self.connection.recv(60))
        return answer

    def refused(self, kind: str, data: Any, code: str, why: str = "") -> bool:
        answer = self.send(kind, data)
        return answer["type"] == "error" and answer["data"]["code"] == code and why in answer["data"]["message"]

    def play(self, kind: str, **data: Any) -> dict[str, Any]:
        answer = self.send(kind, data)
        assert answer["type"] == "observation", answer
        result: dict[str, Any] = answer["data"]
        return result


@contextmanager
def connected(server: TaskServer, path: str, **options: Any) -> Iterator[Socket]:
    with connect(f"{server.address.replace('http', 'ws')}{path}/ws", **options) as connection:
        yield Socket(connection)


def test_an_episode_of_one_turn(server: TaskServer) -> None:
    with connected(server, SUMS) as socket:
        first = socket.play("reset", row="2+2", episode_id="mine")
        assert (first["reward"], first["done"]) == (None, False)
        assert first["observation"]["prompt"] == "2 + 2 =" and first["metadata"]["episode_id"] == "mine"
        last = socket.play("step", text="4")
        assert (last["reward"], last["done"]) == (2.0, True)
        assert last["observation"]["solved"] and last["observation"]["parts"]["right"] == 1.0
        assert last["observation"]["prompt"] is None
        state = {"episode_id": "mine", "step_count": 1, "task": "scoring_tasks.sums", "row": "2+2", "done": True}
        assert socket.send("state") == {"type": "state", "data": state}
        assert socket.refused("step", {"text": "4"}, "EXECUTION_ERROR", "reset begins another")
        socket.play("reset", row="2+2")
        last = socket.play("step", text="spin")  # which cannot be scored
        assert (last["reward"], last["done"]) == (None, True)
        assert last["metadata"]["abstained"].startswith("timeout: ")


def test_rows_are_named_chosen_or_brought(server: TaskServer) -> None:
    with connected(server, SUMS) as socket:
        assert socket.play("reset", index=3)["observation"]["row"] == "3+3"
        assert len({socket.play("reset", seed=7)["observation"]["row"] for _ in range(3)}) == 1
        assert socket.play("reset", row={"id": "x", "a": 20, "b": 3})["observation"]["prompt"] == "20 + 3 ="
        for wrong, why in (
            ({"row": {"id": "x", "a": "many"}}, ""),
            ({"seed": -1}, "'seed'"),
            ({"index": 5}, "there are 5 rows"),
        ):
            assert socket.refused("reset", wrong, "VALIDATION_ERROR", why)


def test_a_game_of_all_roles(server: TaskServer) -> None:
    with connected(server, GAME) as socket:
        first = socket.play("reset", index=0)["observation"]
        assert (first["role"], first["prompt"]) == ("first", "first sees 5:")
        assert socket.play("step", text="2")["observation"]["role"] == "second"
        last = socket.play("step", text="3")
        assert (last["reward"], last["done"]) == (1.0, True)
        assert last["observation"]["rewards"] == {"first": -1.0, "second": 1.0}
        assert "2. second: 3" in last["observation"]["story"]


def test_a_game_against_a_model() -> None:
    moves = iter(["1", "2"])
    with endpoint(lambda _: completion(next(moves))) as model:
        task = load_task(game_task(HEAP), opponent=f"{model.url}#m", seat="second", heap=4)
        with serving(task) as server, connected(server, GAME) as socket:
            assert socket.play("reset", index=0)["observation"]["prompt"] == "second sees 3:"
            last = socket.play("step", text="1")
            assert (last["reward"], last["done"]) == (-1.0, True)


def test_what_cannot_be_played_says_why(server: TaskServer) -> None:
    for path, why in (("/group_tasks.words", "compares the completions"), ("/scoring_tasks.guess", "--opponent-url")):
        with connected(server, path) as socket:
            assert why in socket.send("reset", {})["data"]["message"]
    against_a_model = load_task(game_task(HEAP), opponent="base")
    with serving(against_a_model) as other:
        assert "plays against the model 'base'" in refused(other, "/reset", {})[1]


def test_messages_that_are_wrong(server: TaskServer) -> None:
    with connected(server, SUMS) as socket:
        assert socket.refused("dance", None, "UNKNOWN_TYPE")
        assert socket.refused("step", {"text": 4}, "VALIDATION_ERROR")
        assert socket.refused("step", ["4"], "VALIDATION_ERROR")
        assert socket.refused("step", {"text": "4"}, "EXECUTION_ERROR", "reset begins another")
        for nonsense in ("{nonsense", "[" * 100_000):
            socket.connection.send(nonsense)
            assert json.loads(socket.connection.recv(60))["data"]["code"] == "INVALID_JSON"
        assert socket.play("reset", row="1+1")["observation"]["row"] == "1+1"  # it goes on


def test_episodes_over_http(server: TaskServer) -> None:
    first = ask(server, f"{GUESSES}/reset", {"index": 1})
    episode_id, secret = first["metadata"]["episode_id"], first["observation"]["row"]
    wrong = "0" if secret != "0" else "1"
    second = ask(server, f"{GUESSES}/step", {"action": {"text": wrong}, "episode_id": episode_id})
    assert not second["done"] and second["observation"]["prompt"].startswith(f"guess:{wrong}\n1: ")
    assert ask(server, f"{GUESSES}/state?episode_id={episode_id}")["step_count"] == 1
    assert refused(server, f"{SUMS}/step", {"action": {"text": "0"}, "episode_id": episode_id})[0] == 404
    last = ask(server, f"{GUESSES}/step", {"action": {"text": secret}, "episode_id": episode_id})
    assert (last["reward"], last["done"]) == (1.0, True)
    status, why = refused(server, f"{GUESSES}/step", {"action": {"text": secret}, "episode_id": episode_id})
    assert status == 404 and "episode_id" in why


def test_an_episode_is_nobody_elses(server: TaskServer, monkeypatch: pytest.MonkeyPatch) -> None:
    ask(server, f"{GUESSES}/reset", {"index": 0, "episode_id": "mine"})
    status, why = refused(server, f"{GUESSES}/reset", {"index": 1, "episode_id": "mine"})
    assert status == 409 and "'mine' is being played" in why
    monkeypatch.setattr("grpo_sdk.serve.openenv.MAX_IDLE_S", 0.0)
    assert ask(server, f"{GUESSES}/reset", {"index": 1, "episode_id": "mine"})["done"] is False


def test_rows_are_openenvs_tasks(server: TaskServer) -> None:
    assert {"name": "test", "type": "test"} in ask(server, f"{SUMS}/splits")
    assert ask(server, f"{SUMS}{SUMS}/num_tasks", {"split": "train"}) == {"num_tasks": 5}  # as a client of /TASK asks
    task = ask(server, f"{SUMS}/task", {"split": "train", "index": 2})["task"]
    assert task == {"id": "2+2", "index": 2, "difficulty": None, "prompt": "2 + 2 ="}  # and not its gold
    between = ask(server, f"{SUMS}/task_range", {"split": "train", "start": 1, "stop": 3})["tasks"]
    assert [each["id"] for each in between] == ["1+1", "2+2"]
    assert refused(server, f"{SUMS}/task", {"split": "train", "index": 5})[0] == 400
    assert refused(server, f"{SUMS}/tasks", {"split": "dev"})[0] == 400
    assert "scoring_tasks.sums" in ask(server, "/list_environments")
    assert "text" in ask(server, f"{SUMS}/schema")["action"]["properties"]
    assert ask(server, f"{SUMS}/metadata")["name"] == "scoring_tasks.sums"


@pytest.mark.parametrize(("token", "origin", "status"), [("secret", None, 401), ("", "http://evil.example", 403)])
def test_connections_are_guarded_as_requests_are(token: str, origin: Any, status: int) -> None:
    with serving(sums, token=token) as server:
        with pytest.raises(InvalidStatus) as refusal, connected(server, "", origin=origin):
            pass
        assert refusal.value.response.status_code == status
        with connected(server, "", additional_headers={"Authorization": "Bearer secret"}) as socket:
            assert socket.play("reset", row="1+1")["observation"]["prompt"] == "1 + 1 ="


def test_an_unknown_task_has_no_connection(server: TaskServer) -> None:
    with pytest.raises(InvalidStatus) as refusal, connected(server, "/scoring_tasks.sum"):
        pass
    assert refusal.value.response.status_code == 404
    assert b"Did you mean 'scoring_tasks.sums'?" in refusal.value.response.body


def test_a_long_message_ends_its_connection_alone() -> None:
    with serving(sums, bounds=Bounds(body_bytes=10_000)) as server, connected(server, "") as other:
        with connected(server, "") as socket, pytest.raises(Exception, match=r"1009|message too big"):
            socket.send("step", {"text": "x" * 20_000})
        assert other.play("reset", row="1+1")["observation"]["prompt"] == "1 + 1 ="


@pytest.fixture(scope="module")
def shop() -> Iterator[TaskServer]:
    with serving(load_task(SPEC)) as server:
        yield server


def check(recorded: dict[str, Any], last: dict[str, Any]) -> None:
    score, seen = recorded["score"], last["observation"]
    assert last["done"] and (last["reward"], seen["solved"]) == (score["value"], score["solved"])
    if score["value"] is None:
        assert f"tool {score['named']}()" in last["metadata"]["abstained"]
    else:
        assert seen["parts"] == score["parts"]


def test_episodes_with_tools_are_those_of_our_own_player(shop: TaskServer) -> None:
    with connected(shop, "") as socket:
        listed = socket.play("step", type="list_tools")["observation"]["tools"]
        assert listed == listed_tools(load_task(SPEC).task.all_tools()) and listed[0]["description"] == "undescribed"
        for recorded in EPISODES:
            seen = socket.play("reset", row=recorded["row"])
            assert seen["observation"]["prompt"] == "You have 9 coins. Buy cups. The shop is open."
            for turn in recorded["asked"]:
                seen = socket.play("step", text=turn["text"], calls=sent(turn["calls"]))
            check(recorded, seen)


@pytest.mark.parametrize("name", ["thrifty", "raises"])
def test_a_call_by_itself_is_a_turn(shop: TaskServer, name: str) -> None:
    (recorded,) = (each for each in EPISODES if each["name"] == name)
    told = []
    with connected(shop, "") as socket:
        socket.play("reset", row=recorded["row"])
        for call in (call for turn in recorded["asked"] for call in turn["calls"]):
            seen = socket.play("step", type="call_tool", tool_name=call["name"], arguments=call["arguments"])
            told.append(seen["observation"]["result"])
    check(recorded, seen)
    if name == "thrifty":
        assert told == results_of(recorded) and seen["observation"]["error"] is None
    else:
        assert told == [*results_of(recorded), None] and "haggle" in seen["observation"]["error"]["message"]


def test_calls_over_http_and_in_the_text(shop: TaskServer) -> None:
    begun = ask(shop, "/reset", {"row": EPISODES[0]["row"]})
    look = {"name": "look_up", "arguments": {"item": "cup"}}
    named = {"episode_id": begun["metadata"]["episode_id"]}
    action = {"type": "call_tool", "tool_name": look["name"], "arguments": look["arguments"]}
    seen = ask(shop, "/step", {"action": action, **named})
    shown = f"<tool_call>{json.dumps(look)}</tool_call>\n<tool_result>3 coins</tool_result>"
    assert seen["observation"]["result"] == "3 coins" and shown in seen["observation"]["prompt"]
    order = {"name": "order", "arguments": {"item": "cup", "count": 3}}
    last = ask(shop, "/step", {"action": {"text": f"<tool_call>{json.dumps(order)}</tool_call>"}, **named})
    assert (last["reward"], last["done"]) == (1.0, True)


def test_an_episode_goes_on_where_its_tools_were_ended(shop: TaskServer) -> None:
    """As those of a task that was not used while others were."""
    with connected(shop, "") as socket:
        socket.play("reset", row=EPISODES[0]["row"])
        socket.play("step", type="call_tool", tool_name="put_aside", arguments={"coins": 6})
        tasks = shop.tasks
        for scorer in tasks._scorers.values():
            scorer.close()
        tasks._scorers.clear()
        seen = socket.play("step", type="call_tool", tool_name="order", arguments={"item": "cup"})
        assert seen["observation"]["parts"]["spent"] == 1.0


def test_a_call_needs_tools(server: TaskServer) -> None:
    with connected(server, SUMS) as socket:
        socket.play("reset", row="2+2")
        assert socket.refused("step", {"type": "call_tool", "tool_name": "f"}, "VALIDATION_ERROR", "has no tools")
        assert socket.refused("step", {"type": "call_tool"}, "VALIDATION_ERROR", "'tool_name' is missing")
        assert socket.refused("step", {}, "VALIDATION_ERROR", "'text' is missing")
        assert socket.play("step", type="list_tools")["observation"] == {"tools": []}
