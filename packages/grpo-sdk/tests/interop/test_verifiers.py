"""The taskset for verifiers without it; tests/test_peers.py runs it in verifiers itself."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, Generic, TypeVar

import pydantic
import pytest
from absent_trainers import GUESS, HEAP, SUMS, EpisodeLaws, Played, adapter_of, rows_of, secret_row, sum_row
from recorded_shop import EPISODES, SPEC
from tool_laws import EACH_EPISODE, check_score, results_of, sent

from grpo_sdk.errors import UnscoredError, UserError
from grpo_sdk.plugins.tasks import load_task
from grpo_sdk.task.tools.tool import listed_tools

T, C = TypeVar("T"), TypeVar("C")


class Data(pydantic.BaseModel):
    """The data of a task of verifiers."""

    id: str
    name: str
    prompt: Any


class Task(Generic[T, C]):
    """A task of verifiers."""

    def __init__(self, data: Any, config: Any) -> None:
        self.data, self.config = data, config


class Config(pydantic.BaseModel):
    """The configuration of a taskset of verifiers or of a server of tools, or the state of a rollout."""

    task: Any = None


class Configured(Generic[T, C]):
    """A taskset of verifiers, or a server of tools."""

    def __init__(self, config: Any) -> None:
        self.config = config


class Env(Generic[T]):
    """An environment of verifiers."""


class Message(SimpleNamespace):
    """The assistant's message of verifiers."""

    def __init__(self, content: str, reasoning_content: str | None = None, tool_calls: Any = None) -> None:
        super().__init__(content=content, reasoning_content=reasoning_content, tool_calls=tool_calls)


class ToolMessage(SimpleNamespace):
    """A result of a tool."""

    def model_copy(self, update: dict[str, Any]) -> ToolMessage:
        return ToolMessage(**vars(self) | update)


class Trace:
    """A trace of verifiers."""

    def __init__(self, *messages: Message, **fields: Any) -> None:
        self.assistant_messages, self.metrics, self.info = list(messages), {}, {}
        self.stop_condition, self.state, self.task = None, fields.get("state"), fields.get("task")

    def record_metrics(self, metrics: dict[str, float]) -> None:
        self.metrics |= metrics


def reward(weight: float) -> Callable[[Any], Any]:
    assert weight == 1.0
    return lambda function: function


adapter = adapter_of("verifiers", {
    "verifiers.v1": {
        "AgentConfig": SimpleNamespace, "Agents": object, "Env": Env,
        "EnvConfig": object, "Task": Task, "TaskData": Data, "Taskset": Configured, "TasksetConfig": Config,
        "Trace": Trace, "reward": reward, "State": Config, "SharedToolsetConfig": Config, "Toolset": Configured,
        "intercept": lambda function: function, "stop": lambda function: function,
    },
    "verifiers.v1.dialects": {"parse_message": lambda message: SimpleNamespace(**message)},
    "verifiers.v1.types": {"AssistantMessage": Message, "Request": SimpleNamespace, "ToolMessage": ToolMessage},
})  # fmt: skip


class Agent:
    """An agent of verifiers that answers from a list."""

    def __init__(self, *answers: Message | str) -> None:
        self.answers, self.inputs, self.trace = list(answers), [], Trace()

    async def run(self, task: Any) -> None:
        self.say()

    @asynccontextmanager
    async def interaction(self, task: Any) -> AsyncIterator[Agent]:
        yield self

    async def turn(self, messages: list[dict[str, str]] | None) -> Any:
        self.inputs.append(messages)
        message = self.say()
        return SimpleNamespace(messages=[message], terminated=message.content == "stop")

    def say(self) -> Message:
        answer = self.answers.pop(0)
        message = Message(answer) if isinstance(answer, str) else answer
        self.trace.assistant_messages.append(message)
        return message


def tasks(adapter: Any, spec: str) -> list[Any]:
    return list(adapter.GrpoTaskset(adapter.GrpoTasksetConfig(spec=spec)).load())


def played(adapter: Any, spec: str, row: str, *answers: Message | str) -> tuple[Agent, float]:
    """Play an episode as verifiers does, and then score it."""
    agent = Agent(*answers)
    task = adapter.GrpoTask(tasks(adapter, spec)[0].data.model_copy(update={"row": row}), None)

    async def play() -> float:
        await adapter.GrpoEnv().run(task, SimpleNamespace(agent=agent))
        return float(await task.reward(agent.trace))

    return agent, asyncio.run(play())


class TestVerifiers(EpisodeLaws):
    trainer = "verifiers"

    def played(self, adapter: Any, spec: str, row: str, *texts: str) -> Played:
        agent, value = played(adapter, spec, row, *texts)
        assert "why" in agent.trace.info
        return Played(value, agent.trace.metrics)


def test_reasoning_that_was_split_off_is_part_of_the_completion(adapter: Any) -> None:
    agent, _ = played(adapter, SUMS, sum_row(), Message("4", "2 and 2"))
    assert agent.trace.metrics["valid"] == 0.0 and agent.inputs == []  # <think>…</think>4 is no number


def test_turns_are_an_interaction_that_begins_with_the_prompt_of_the_task(adapter: Any) -> None:
    agent, _ = played(adapter, GUESS, secret_row(7), "3", "7")
    assert agent.inputs == [None, [{"role": "user", "content": "\n1: higher:"}]]
    agent, value = played(adapter, GUESS, secret_row(7), "3", "stop", "7")  # a limit of verifiers' own
    assert value == 0.0 and agent.answers == ["7"]


def test_a_game_begins_with_what_its_rules_show(adapter: Any) -> None:
    agent, _ = played(adapter, HEAP, rows_of(HEAP)[0], "1", "1")
    assert [messages[-1]["content"] for messages in agent.inputs if messages] == ["first sees 5:", "first sees 1:"]


def test_a_taskset_has_the_rows_of_its_task(adapter: Any) -> None:
    loaded = tasks(adapter, SUMS)
    assert [task.data.id for task in loaded] == ["0+0", "1+1", "2+2", "3+3", "4+4"]
    assert [message.content for message in loaded[2].data.prompt] == ["2 + 2 ="]
    assert loaded[2].data.row == sum_row() and tasks(adapter, HEAP)[0].data.prompt is None
    # The default runtime of verifiers is a sandbox of its company, which needs an account.
    assert adapter.GrpoEnvConfig.agent == SimpleNamespace(harness={"id": "null"}, runtime={"type": "subprocess"})
    with pytest.raises(UserError, match=r"no task: give --env\.taskset\.spec"):
        tasks(adapter, "")


def test_verifiers_finds_the_taskset_by_its_id(adapter: Any) -> None:
    sys.modules.pop("grpo_verifiers", None)
    try:
        module = importlib.import_module("grpo_verifiers")
        assert module.GrpoTaskset is adapter.GrpoTaskset and module.GrpoEnv is adapter.GrpoEnv
    finally:
        sys.modules.pop("grpo_verifiers", None)


async def rollout(adapter: Any, task: Any, asked: list[dict[str, Any]]) -> tuple[Trace, list[str]]:
    """A rollout as verifiers' session drives it: the trace, and what the model is told."""
    trace, told = Trace(state=adapter.EpisodeState(), task=SimpleNamespace(data=task.data)), list[str]()
    await task.setup(trace, None)
    conversation = list(trace.task.data.prompt)
    for turn in asked:
        assert not await task.is_over(SimpleNamespace(messages=conversation), trace)
        calls = [
            SimpleNamespace(id=f"call_{place}", **call["function"]) for place, call in enumerate(sent(turn["calls"]))
        ]
        conversation.append(Message(turn["text"], tool_calls=calls or None))
        trace.assistant_messages.append(conversation[-1])
        for call in calls:
            probe = ToolMessage(tool_call_id=call.id, name=call.name, content="")
            request = await task.answer_call(SimpleNamespace(messages=[*conversation, probe]), trace)
            conversation.append(request.messages[-1])
            told.append(request.messages[-1].content)
            if await task.is_over(request, trace):
                return trace, told
            assert await task.answer_call(SimpleNamespace(messages=conversation), trace) is None  # as it comes back
    return trace, told


def shop_task(adapter: Any, row: str) -> Any:
    return adapter.GrpoTask(tasks(adapter, SPEC)[0].data.model_copy(update={"row": row}), None)


@EACH_EPISODE
def test_an_episode_with_tools_is_that_of_our_own_player(adapter: Any, recorded: dict[str, Any]) -> None:
    task = shop_task(adapter, recorded["row"])

    async def rewarded(trace: Trace) -> Played:
        try:
            return Played(await task.reward(trace), trace.metrics)
        except UnscoredError as error:
            return Played(None, why=str(error))

    async def play() -> None:
        trace, told = await rollout(adapter, task, recorded["asked"])
        opened = [message.content for message in trace.task.data.prompt]
        assert opened == ["You have 9 coins. Buy cups. The shop is open."]
        results = results_of(recorded)
        assert told[: len(results)] == results[: len(told)]
        played = await rewarded(trace)
        check_score(recorded, played)
        stored = Trace(state=adapter.EpisodeState())
        stored.info = trace.info
        if played.reward is None:
            assert "no episode that came to its end" in (await rewarded(stored)).why
        else:
            assert json.loads(trace.info["episode"])["turns"] == recorded["turns"]
            assert await rewarded(stored) == played

    asyncio.run(play())


def test_a_harness_that_does_not_ask_before_a_call_is_named(adapter: Any) -> None:
    task, trace = shop_task(adapter, EPISODES[0]["row"]), Trace(state=adapter.EpisodeState())
    trace.stop_condition = "answer_call"
    with pytest.raises(UserError, match=r"makes calls without asking.*Take null"):
        asyncio.run(task.reward(trace))


def test_a_toolset_lists_the_tools_of_a_task_and_runs_none(adapter: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp_types", SimpleNamespace(Tool=SimpleNamespace))
    assert adapter.GrpoTaskset.toolsets(SimpleNamespace(spec=SUMS)) == []
    (toolset,) = adapter.GrpoTaskset.toolsets(SimpleNamespace(spec=SPEC))
    server = SimpleNamespace()
    toolset.register(server)
    listed = [vars(tool) for tool in asyncio.run(server.list_tools())]
    assert listed == listed_tools(load_task(SPEC).task.all_tools()) and toolset.TOOL_PREFIX is None
    assert listed[0]["description"] == "undescribed"
    with pytest.raises(ValueError, match="without asking"):
        asyncio.run(server.call_tool("look_up", {"item": "cup"}))
