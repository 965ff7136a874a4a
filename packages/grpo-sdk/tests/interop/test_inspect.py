"""Evaluations of Inspect without it; tests/test_peers.py runs them in Inspect itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from absent_trainers import GUESS, SUMS, EpisodeLaws, Played, adapter_of, secret_row, sum_row
from recorded_shop import EPISODES, SPEC
from tool_laws import EACH_EPISODE, check_score, results_of

from grpo_sdk.errors import UserError


@dataclass
class Message:
    """Inspect's chat messages."""

    content: Any
    role: str = ""
    source: str | None = None
    tool_calls: Any = None
    tool_call_id: str | None = None
    function: str = ""

    @property
    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content if not isinstance(part, Reasoning))


System, User, Assistant, Told = (type(name, (Message,), {}) for name in ("System", "User", "Assistant", "Told"))


@dataclass
class Call:
    """Inspect's call of a tool."""

    id: str
    function: str
    arguments: dict[str, Any]
    parse_error: str | None = None


@dataclass
class ToolDef:
    """Inspect's tool, which checks nothing here."""

    tool: Callable[..., Any]
    name: str
    description: str
    parameters: Any

    def as_tool(self) -> ToolDef:
        return self


class Reasoning(SimpleNamespace):
    """Inspect's content that was split off."""


class Score(SimpleNamespace):
    """Inspect's score."""

    reason = ""

    @classmethod
    def unscored(cls, **fields: str) -> Score:
        return cls(value=None, **fields)


@dataclass
class State:
    """Inspect's state of a sample."""

    metadata: dict[str, Any]
    messages: list[Message] = field(default_factory=list)
    output: Any = None
    completed: bool = False
    uuid: str = ""
    tools: Any = ()
    store: Any = field(default_factory=lambda: Store())


class Store(dict[str, Any]):
    """Inspect's store of a sample."""

    def set(self, key: str, value: Any) -> None:
        self[key] = value


STORE = Store()
"""That of the sample that runs."""


def decorator(*arguments: Any, **options: Any) -> Callable[..., Any]:
    return arguments[0] if arguments else lambda function: function


adapter = adapter_of("inspect", {
    "inspect_ai": {"Task": lambda dataset, **fields: SimpleNamespace(dataset=dataset, **fields), "task": decorator},
    "inspect_ai.dataset": {"MemoryDataset": lambda samples, name: samples, "Sample": SimpleNamespace},
    "inspect_ai.model": {
        "ChatMessage": Message, "ChatMessageAssistant": Assistant, "ChatMessageSystem": System,
        "ChatMessageTool": Told, "ChatMessageUser": User, "ContentReasoning": Reasoning,
        "GenerateConfig": SimpleNamespace,
    },
    "inspect_ai.scorer": {
        "Score": Score, "Scorer": object, "Target": object, "mean": str, "stderr": str, "scorer": decorator,
    },
    "inspect_ai.tool": {
        "Tool": object, "ToolCall": Call, "ToolDef": ToolDef,
        "ToolParams": SimpleNamespace(model_validate=lambda schema: schema),
    },
    "inspect_ai.util": {"store": lambda: STORE},
    "inspect_ai.solver": {"Generate": object, "Solver": object, "TaskState": State, "solver": decorator},
})  # fmt: skip


def says(text: Any, *calls: Call) -> Message:
    """What the model writes."""
    return Assistant(text, source="generate", tool_calls=[*calls] or None)


def saying(*messages: Message, limit: int = 99) -> Callable[..., Any]:
    """Inspect's `generate` of a model that says this, and a limit of inspect's that ends the sample."""
    left = list(messages)

    async def generate(state: State, tool_calls: str) -> State:
        assert tool_calls == "none"
        state.messages.append(left.pop(0))
        state.output = SimpleNamespace(message=state.messages[-1])
        state.completed = len(messages) - len(left) >= limit
        return state

    return generate


def evaluated(adapter: Any, spec: str, row: str, *answers: Any, limit: int = 99) -> tuple[State, Score]:
    """Play and score a sample, with the answers of a model."""
    task, state = adapter.task(spec), State(adapter.sample_of(spec, row).metadata)

    async def run() -> tuple[State, Score]:
        played = await task.solver(state, saying(*map(says, answers), limit=limit))
        return played, await task.scorer(played, None)

    return asyncio.run(run())


class TestInspect(EpisodeLaws):
    trainer = "inspect"

    def played(self, adapter: Any, spec: str, row: str, *texts: str) -> Played:
        _, score = evaluated(adapter, spec, row, *texts)
        assert score.answer == texts[-1] and score.reason == ("scoring_failed" if score.value is None else "")
        return played_of(score)


def test_turns_are_messages_and_a_limit_of_inspect_ends_them(adapter: Any) -> None:
    state, _ = evaluated(adapter, GUESS, secret_row(7), "3", "7")
    assert state.messages == [User("guess:"), says("3"), User("\n1: higher:"), says("7")]
    _, score = evaluated(adapter, GUESS, secret_row(7), "3", "7", limit=1)
    assert score.value["reward"] == 0.0 and score.answer == "3"


def test_reasoning_that_was_split_off_is_part_of_the_completion(adapter: Any) -> None:
    _, score = evaluated(adapter, SUMS, sum_row(), [Reasoning(reasoning="2 and 2"), SimpleNamespace(text="4")])
    assert score.answer == "<think>2 and 2</think>4" and score.value["valid"] == 0.0


def test_an_evaluation_says_what_it_evaluates(adapter: Any) -> None:
    task = adapter.task(SUMS)
    assert [sample.id for sample in task.dataset] == ["0+0", "1+1", "2+2", "3+3", "4+4"]
    assert task.dataset[2].target == "4" and task.metadata["task"] == SUMS
    assert task.name.endswith("hurried") and task.metadata["identity"]


def turn_of(turn: dict[str, Any]) -> Message:
    """A recorded turn as the model writes it."""
    calls = [Call(f"call_{place}", call["name"], call["arguments"]) for place, call in enumerate(turn["calls"])]
    return says(turn["text"], *calls)


def scored(adapter: Any, recorded: Any, *messages: Message, solve: Any = None) -> tuple[State, Score, Score]:
    """A sample with tools, of a model or another solver: its state, its score, and what the log gives later."""
    task, uuid = adapter.task(SPEC), recorded["name"]
    state = State(adapter.sample_of(SPEC, recorded["row"]).metadata, uuid=uuid, store=STORE)
    STORE.clear()

    async def run() -> tuple[State, Score, Score]:
        begun = await task.setup(state, None)
        assert [message.content for message in state.messages] == ["You have 9 coins. Buy cups. The shop is open."]
        played = await (solve(begun) if solve else task.solver(begun, saying(*messages)))
        score = await task.scorer(played, None)
        await task.cleanup(played)
        return played, score, await task.scorer(played, None)

    return asyncio.run(run())


def played_of(score: Score) -> Played:
    parts = dict(score.value or {})
    return Played(parts.pop("reward", None), parts, score.explanation)


def check(recorded: dict[str, Any], score: Score, again: Score) -> None:
    check_score(recorded, played_of(score))
    if recorded["score"]["value"] is None:
        assert again.value is None and "no episode that came to its end" in again.explanation
    else:
        assert again == score


@EACH_EPISODE
def test_an_episode_with_tools_is_that_of_our_own_player(adapter: Any, recorded: dict[str, Any]) -> None:
    state, score, again = scored(adapter, recorded, *map(turn_of, recorded["asked"]))
    told = [message for message in state.messages if isinstance(message, Told)]
    results = results_of(recorded)
    assert [message.content for message in told][: len(results)] == results
    assert sum(message.source == "generate" for message in state.messages) == len(recorded["asked"])
    asked = [call for message in state.messages for call in message.tool_calls or ()]
    assert [(each.tool_call_id, each.function) for each in told] == [(call.id, call.function) for call in asked]
    if recorded["score"]["value"] is not None:
        assert json.loads(state.store["grpo_episode"])["turns"] == recorded["turns"]
    check(recorded, score, again)


@pytest.mark.parametrize("name", ["good", "thrifty", "wrong arguments", "tool error", "no call", "raises", "hangs"])
def test_a_solver_of_inspects_own_calls_the_tools(adapter: Any, name: str) -> None:
    (recorded,) = [each for each in EPISODES if each["name"] == name]
    told: list[str] = []

    async def solve(state: State) -> State:
        tools = {tool.name: tool.tool for tool in state.tools}
        for turn in recorded["asked"]:
            state.messages.append(turn_of(turn))
            told.extend([await tools[call["name"]](**call["arguments"]) for call in turn["calls"]])
        if turn["calls"]:
            state.messages.append(says("bye"))
        return state

    _, score, again = scored(adapter, recorded, solve=solve)
    results = results_of(recorded)
    assert told[: len(results)] == results
    check(recorded, score, again)


def test_a_tool_needs_an_episode_and_runs_none_that_is_over(adapter: Any) -> None:
    tools = {tool.name: tool.tool for tool in adapter.tools(SPEC)}
    STORE.clear()
    with pytest.raises(UserError, match=r"must follow grpo_sdk\.interop\.inspect\.begin"):
        asyncio.run(tools["look_up"](item="cup"))

    async def solve(state: State) -> State:
        state.messages.append(says("", Call("a", "order", {"item": "cup"})))
        assert await tools["order"](item="cup", count=3) == "You have 3 cup."
        assert await tools["order"](item="cup", count=1) == "This call was not run."
        return state

    _, score, _ = scored(adapter, EPISODES[0], solve=solve)
    assert score.value["spent"] == 1.0


def test_what_inspect_could_not_read_is_told(adapter: Any) -> None:
    broken = says("", Call("a", "order", {}, "no JSON: {"))
    state, _, _ = scored(adapter, EPISODES[0], broken, says("done"))
    assert [message.content for message in state.messages if isinstance(message, Told)] == ["no JSON: {"]


def test_schemas_are_written_in_the_words_that_inspect_has(adapter: Any) -> None:
    tools = {tool.name: tool for tool in adapter.tools(SPEC)}
    assert tools["undescribed"].description == "undescribed"
    assert tools["undescribed"].parameters["properties"] == {"number": {"type": "integer", "description": "number"}}
    definitions = {
        "Box": {"type": "object", "properties": {"inner": {"$ref": "#/$defs/Box"}, "kind": {"const": "box"}}},
    }
    properties = {"box": {"oneOf": [{"$ref": "#/$defs/Box"}, {"type": "null"}]}, "same": {"$ref": "#/properties/box"}}
    schema = {"type": "object", "properties": properties, "$defs": definitions}
    written = adapter._written_out(schema, schema)
    assert written["properties"]["same"] == written["properties"]["box"]
    box = written["properties"]["box"]["anyOf"][0]
    assert box["properties"]["kind"] == {"const": "box", "enum": ["box"]} and "$ref" not in json.dumps(written)
    assert box["properties"]["inner"]["properties"]["inner"]["type"] == "object"


def test_a_prompt_that_shows_calls_is_one_of_inspects(adapter: Any) -> None:
    calls = [{"id": "call00000", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}]
    shown = [
        {"role": "assistant", "content": "", "tool_calls": calls, "reasoning_content": "hm"},
        {"role": "tool", "content": "2", "name": "f", "tool_call_id": "call00000"},
    ]
    called, told = adapter._chat(shown)
    assert called.tool_calls == [Call("call00000", "f", {"a": 1})] and called.content == "<think>hm</think>"
    assert (told.content, told.tool_call_id, told.function) == ("2", "call00000", "f")
