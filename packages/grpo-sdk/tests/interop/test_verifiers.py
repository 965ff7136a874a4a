"""The taskset for verifiers without it; tests/test_peers.py runs it in verifiers itself."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, Generic, TypeVar

import pydantic
import pytest
from absent_trainers import GUESS, HEAP, SUMS, EpisodeLaws, Played, rows_of, secret_row, sum_row, trainer

from grpo_sdk.errors import UnscoredError, UserError

T, C = TypeVar("T"), TypeVar("C")


class Data(pydantic.BaseModel):
    """The data of a task of verifiers."""

    id: str
    name: str
    prompt: Any


class Task(Generic[T]):
    """A task of verifiers."""

    def __init__(self, data: Any, config: Any) -> None:
        self.data, self.config = data, config


class TasksetConfig(pydantic.BaseModel):
    """The configuration of a taskset of verifiers."""

    task: Any = None


class Taskset(Generic[T, C]):
    """A taskset of verifiers."""

    def __init__(self, config: Any) -> None:
        self.config = config


class Env(Generic[T]):
    """An environment of verifiers."""


class Message(SimpleNamespace):
    """The assistant's message of verifiers."""

    def __init__(self, content: str, reasoning_content: str | None = None) -> None:
        super().__init__(content=content, reasoning_content=reasoning_content)


class Trace:
    """A trace of verifiers."""

    def __init__(self, *messages: Message) -> None:
        self.assistant_messages, self.metrics, self.info = list(messages), {}, {}

    def record_metrics(self, metrics: dict[str, float]) -> None:
        self.metrics |= metrics


def reward(weight: float) -> Callable[[Any], Any]:
    assert weight == 1.0
    return lambda function: function


@pytest.fixture(scope="module")
def adapter() -> Iterator[Any]:
    v1 = {
        "AgentConfig": SimpleNamespace, "Agents": object, "Env": Env,
        "EnvConfig": object, "Task": Task, "TaskData": Data, "Taskset": Taskset, "TasksetConfig": TasksetConfig,
        "Trace": Trace, "reward": reward,
    }  # fmt: skip
    packages = {
        "verifiers.v1": v1,
        "verifiers.v1.dialects": {"parse_message": lambda message: SimpleNamespace(**message)},
        "verifiers.v1.types": {"AssistantMessage": Message},
    }
    with trainer("verifiers", packages) as adapter:
        yield adapter


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
    with pytest.raises(UnscoredError, match="no completion to score"):
        asyncio.run(tasks(adapter, SUMS)[0].reward(Trace()))


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
