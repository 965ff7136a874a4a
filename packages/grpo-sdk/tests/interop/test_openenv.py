"""The environment for OpenEnv without it; tests/test_peers.py runs it in OpenEnv itself."""

import asyncio
import json
from typing import Any, Generic, TypeVar

import pydantic
import pytest
from absent_trainers import GUESS, SUMS, EpisodeLaws, Played, adapter_of, secret_row, sum_row
from recorded_shop import EPISODES, SPEC
from tool_laws import EACH_EPISODE, check_score, results_of, sent

from grpo_sdk.errors import UserError
from grpo_sdk.plugins.tasks import load_task
from grpo_sdk.task.tools.tool import listed_tools

A, O, S = TypeVar("A"), TypeVar("O"), TypeVar("S")  # noqa: E741 - as OpenEnv's


class Environment(Generic[A, O, S]):
    """OpenEnv's environment."""


class Action(pydantic.BaseModel):
    """OpenEnv's action."""


class Observation(pydantic.BaseModel):
    """OpenEnv's observation."""

    done: bool = False
    reward: float | None = None
    metadata: dict[str, Any] = {}


class State(pydantic.BaseModel, extra="allow"):
    """OpenEnv's state, its metadata of an environment, and its tool."""


class ToolAction(Action):
    """OpenEnv's call of a tool, and its request for the tools."""

    type: str = "call_tool"
    tool_name: str = ""
    arguments: dict[str, Any] = {}


class ListToolsObservation(Observation):
    """OpenEnv's list of tools."""

    tools: list[Any]


class CallToolObservation(Observation):
    """OpenEnv's result of a call."""

    tool_name: str
    result: Any = None
    error: Any = None


adapter = adapter_of("openenv", {
    "openenv.core.env_server.interfaces": {"Environment": Environment},
    "openenv.core.env_server.mcp_types": {
        "CallToolAction": ToolAction, "CallToolObservation": CallToolObservation, "Tool": State,
        "ListToolsAction": ToolAction, "ListToolsObservation": ListToolsObservation,
    },
    "openenv.core.env_server.types": {
        "Action": Action, "EnvironmentMetadata": State, "Observation": Observation, "State": State,
    },
})  # fmt: skip


def ended(seen: Any) -> Played:
    """What is known of an episode that is over."""
    assert seen.done and seen.messages == []
    values = {**seen.parts, "solved": float(seen.solved), "valid": float(seen.valid)}
    return Played(seen.reward, values, seen.metadata.get("abstained", ""))


class TestOpenEnv(EpisodeLaws):
    trainer = "OpenEnv"

    def played(self, adapter: Any, spec: str, row: str, *texts: str) -> Played:
        environment = adapter.TaskEnvironment(spec)
        seen = environment.reset(row=row)
        for text in texts:
            assert not seen.done and seen.reward is None
            seen = environment.step(adapter.TaskAction(text=text))
        assert texts[-1] in seen.story
        return ended(seen)


def test_turns_are_steps(adapter: Any) -> None:
    environment = adapter.TaskEnvironment(GUESS)

    async def play() -> Any:
        begin = await environment.reset_async(row=secret_row(7), episode_id="e")
        return begin, await environment.step_async(adapter.TaskAction(text="3"))

    begin, middle = asyncio.run(play())
    assert [message["content"] for message in begin.messages] == ["guess:"]
    assert [message["content"] for message in middle.messages] == ["guess:", "3", "\n1: higher:"]
    assert environment.state.step_count == 1 and environment.state.episode_id == "e"


def test_rows_are_chosen_by_index_or_seed(adapter: Any) -> None:
    environment = adapter.TaskEnvironment(SUMS)
    assert environment.reset(split="train", index=2).row == "2+2"
    assert environment.reset(seed=5).row == environment.reset(seed=5).row
    assert environment.num_tasks("train") == 5 and environment.list_splits() == ["train", "validation", "test"]
    assert [each["id"] for each in environment.get_task_range("train", 1, 3)] == ["1+1", "2+2"]
    described = {"id": "2+2", "index": 2, "difficulty": None, "messages": [{"role": "user", "content": "2 + 2 ="}]}
    assert environment.get_task("train", 2) == described  # and not its gold
    for options, message in (({"index": 5}, "index 5: .*5 rows"), ({"index": -1}, "-1"), ({"split": "dev"}, "dev")):
        with pytest.raises(UserError, match=message):
            environment.reset(**options)


def test_a_step_needs_an_episode(adapter: Any) -> None:
    environment = adapter.TaskEnvironment(SUMS)
    with pytest.raises(UserError, match="the episode is over"):
        environment.step(adapter.TaskAction(text="4"))
    environment.reset(row=sum_row())
    environment.step(adapter.TaskAction(text="4"))
    with pytest.raises(UserError, match="the episode is over"):
        environment.step(adapter.TaskAction(text="4"))


@EACH_EPISODE
def test_an_episode_with_tools_is_that_of_our_own_player(adapter: Any, recorded: dict[str, Any]) -> None:
    environment = adapter.TaskEnvironment(SPEC)
    seen = environment.reset(row=recorded["row"])
    for turn in recorded["asked"]:
        told = [message["content"] for message in seen.messages if message["role"] == "tool"]
        seen = environment.step(adapter.TaskAction(text=turn["text"], calls=sent(turn["calls"])))
    assert told == results_of({"turns": recorded["turns"][:-1]})
    check_score(recorded, ended(seen))


@pytest.mark.parametrize(("name", "error"), [
    ("good", None), ("thrifty", None), ("unknown tool", None), ("tool error", None), ("out of turns", None),
    ("raises", "execution_error"), ("hangs", "timeout"),
])  # fmt: skip
def test_a_call_by_itself_is_a_turn(adapter: Any, name: str, error: str | None) -> None:
    (recorded,) = (each for each in EPISODES if each["name"] == name)
    environment = adapter.TaskEnvironment(SPEC)
    told, _ = [], environment.reset(row=recorded["row"])
    for call in (call for turn in recorded["asked"] for call in turn["calls"]):
        seen = environment.step(ToolAction(tool_name=call["name"], arguments=call["arguments"]))
        told.append(seen.result)
    check_score(recorded, ended(seen))
    assert told == results_of(recorded) + [None] * (error is not None)
    assert seen.error == (error and {"error_type": error, "message": seen.error["message"]})
    assert error is None or recorded["score"]["named"] in seen.error["message"]


def test_calls_may_stand_in_the_text(adapter: Any) -> None:
    environment = adapter.TaskEnvironment(SPEC)
    environment.reset(row=EPISODES[0]["row"])
    call = json.dumps({"name": "order", "arguments": {"item": "cup", "count": 3}})
    assert environment.step(adapter.TaskAction(text=f"<tool_call>{call}</tool_call>")).parts["spent"] == 1.0


def test_tools_are_listed_without_an_episode_and_called_by_a_client_of_the_protocol(adapter: Any) -> None:
    environment = adapter.TaskEnvironment(SPEC)
    expected = listed_tools(load_task(SPEC).task.all_tools())
    assert [tool.model_dump() for tool in environment.step(ToolAction(type="list_tools")).tools] == expected
    assert expected[0]["description"] == "undescribed"

    async def beside() -> Any:
        client = environment.mcp_client
        assert client.is_connected() and [tool.model_dump() for tool in await client.list_tools()] == expected
        await environment.reset_async(row=EPISODES[0]["row"])
        return await client.call_tool(name="look_up", arguments={"item": "cup"})

    assert asyncio.run(beside()).result == "3 coins"
    assert adapter.TaskEnvironment(SUMS).mcp_client is None
    described = environment.get_task("train", 0)["messages"]
    assert described == [{"role": "user", "content": "You have 9 coins. Buy cups."}]


def test_what_an_action_lacks_is_named(adapter: Any) -> None:
    for fields, message in (({}, "'text' is missing"), ({"type": "call_tool"}, "'tool_name' is missing")):
        with pytest.raises(ValueError, match=message):
            adapter.TaskAction(**fields)
    environment = adapter.TaskEnvironment(SUMS)
    environment.reset(row=sum_row())
    with pytest.raises(UserError, match="has no tools: give a text"):
        environment.step(ToolAction(tool_name="look_up"))
