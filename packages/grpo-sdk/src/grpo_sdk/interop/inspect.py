"""Any task as an evaluation of inspect-ai, with its scorer, several turns and games included.

    inspect eval grpo_sdk/task -T spec=math.gsm8k?split=test --model openai/gpt-5

    from grpo_sdk.interop.inspect import task
    inspect_ai.eval(task("math.gsm8k?split=test"), model="vllm/Qwen/Qwen3-0.6B")

A completion that cannot be scored is unscored: it is in the log with its reason, and in no metric. `inspect score
LOG --scorer grpo_sdk/score` scores a log again. Read in inspect-ai 0.3.285.

In a task with tools, `play` answers a completion's calls itself, in our workers. `tools` are the same as tools of
Inspect, for its own solvers and agents: there each call is a turn.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from grpo_sdk.chat.json_calls import judged
from grpo_sdk.episodes.episode import Reply
from grpo_sdk.episodes.player import arun
from grpo_sdk.errors import UnscoredError, UserError
from grpo_sdk.interop.adapter import (
    Conversation,
    RowReference,
    TaskAdapter,
    answer_text,
    check_replayable,
    requires,
    shared_adapter,
)
from grpo_sdk.scoring.parts import log_values
from grpo_sdk.task.score import Score as OwnScore
from grpo_sdk.task.tools.calls import Reading, ToolCall
from grpo_sdk.task.tools.tool import pointed
from grpo_sdk.task.turns import NOT_RUN

with requires("inspect_ai", "pip install inspect-ai"):
    from inspect_ai import Task
    from inspect_ai import task as inspect_task
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.model import (
        ChatMessage,
        ChatMessageAssistant,
        ChatMessageSystem,
        ChatMessageTool,
        ChatMessageUser,
        ContentReasoning,
        GenerateConfig,
    )
    from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
    from inspect_ai.solver import Generate, Solver, TaskState, solver
    from inspect_ai.tool import Tool, ToolDef, ToolParams
    from inspect_ai.tool import ToolCall as InspectCall
    from inspect_ai.util import store

_SAMPLE, _EPISODE = "grpo_sample", "grpo_episode"
"""What a sample's store holds: its name among `_played`, and the episode that was scored."""

MAX_DEPTH = 6
"""Levels of a tool's schema that are written out; one may refer to itself."""

_WORDS = {"oneOf": "anyOf"}

_played: dict[str, Conversation] = {}
"""The episodes of samples that run now."""


@inspect_task(name="task")
def task(spec: str) -> Task:
    """A task as an evaluation; its rows are the samples.

    Args:
        spec: Spec of the task: `math.gsm8k?split=test&size=100`.

    Raises:
        UserError: inspect cannot run the task.
    """
    own = _adapter(spec).task
    return Task(
        MemoryDataset([sample_of(spec, row) for row in own.rows()], name=own.name),
        setup=begin(spec) if own.task.has_tools else None,
        solver=play(spec),
        cleanup=_forget,
        scorer=score(spec),
        config=GenerateConfig(max_tokens=own.task.max_completion_length),
        name=own.name,
        version=own.task.version,
        metadata={"task": own.spec, "identity": own.identity},
    )


def sample_of(spec: str, row: RowReference) -> Sample:
    """A row of a task as a sample, whose metadata hold the row as JSON."""
    adapter = _adapter(spec)
    read = adapter.row(row)
    return Sample(
        input=_chat(adapter.first_messages(read)),
        target=read.gold or "",
        id=read.id,
        metadata={"row": read.model_dump_json(), "difficulty": read.difficulty},
    )


@solver
def begin(spec: str) -> Solver:
    """Begin an episode with tools: its messages, with what `reset()` adds, and its tools."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        episode = _played[state.uuid] = Conversation(_adapter(spec), state.metadata["row"])
        with suppress(UnscoredError):  # which its score says
            state.messages = _chat(await arun(episode.begin()))
        state.tools = tools(spec)
        state.store.set(_SAMPLE, state.uuid)
        return state

    return solve


def tools(spec: str) -> list[Tool]:
    """A task's tools as Inspect's, for a solver or an agent of its own behind `begin`.

    Inspect knows no references in a schema and no `const`: they are written out. What it leaves out of one, e.g.
    `multipleOf`, the task still checks.
    """
    made = []
    for tool in _adapter(spec).task.task.all_tools():
        schema = _written_out(tool.parameters, tool.parameters)
        for name, described in schema["properties"].items():  # Inspect takes no parameter without
            described.setdefault("description", name)
        parameters, about = ToolParams.model_validate(schema), tool.description or tool.name
        made.append(ToolDef(_caller(tool.name), tool.name, about, parameters).as_tool())
    return made


@solver
def play(spec: str) -> Solver:
    """Let the model play an episode: one completion, or turn after turn."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        if (episode := _played.get(state.uuid)) is not None:
            return await _play_with_tools(episode, state, generate)
        conversation = Conversation(_adapter(spec), state.metadata["row"])
        state.messages = _chat(await arun(conversation.begin()))
        while not conversation.is_over:
            state = await generate(state, tool_calls="none")
            if state.completed:  # a limit of inspect's
                break
            state.messages += _chat(await arun(conversation.reply(_text(state.output.message))))
        return state

    return solve


@scorer(metrics={"*": [mean(), stderr()]})
def score(spec: str) -> Scorer:
    """Score what the model wrote: the value `reward`, `solved`, `valid` and every part."""

    async def score_sample(state: TaskState, target: Target) -> Score:
        adapter = _adapter(spec)
        texts = [_text(message) for message in state.messages if _is_sampled(message)]
        try:
            if adapter.task.task.has_tools:
                own = adapter.scored(await _tool_score(adapter, state))
            else:
                own = adapter.scored(await arun(Conversation(adapter, state.metadata["row"]).replay(texts)))
        except UnscoredError as error:
            return Score.unscored(reason="scoring_failed", answer="".join(texts[-1:]), explanation=str(error))
        value = {"reward": own.value, **log_values(adapter.task, own)}
        return Score(value=value, answer="".join(texts[-1:]), explanation=own.why)

    return score_sample


async def _play_with_tools(episode: Conversation, state: TaskState, generate: Generate) -> TaskState:
    while not episode.is_over:
        state = await generate(state, tool_calls="none")
        message = state.output.message
        made = message.tool_calls or []
        following = await arun(episode.call(_said(_text(message), *map(_call, made))))
        for call, told in zip(made, following, strict=False):
            told["tool_call_id"] = call.id
        state.messages += _chat(following)
        if state.completed:  # a limit of inspect's
            break
    return state


async def _tool_score(adapter: TaskAdapter, state: TaskState) -> OwnScore:
    """The score of an episode with tools, by the state that its calls have left, or by repeating a logged one."""
    episode = _played.get(state.uuid)
    if episode is None:
        again = Conversation(adapter, state.metadata["row"]).score_again(state.store.get(_EPISODE, ""))
        return await arun(again)
    said = [message for message in state.messages if _is_sampled(message)][-1:]
    played = episode.episode.turns[-1].text if episode.episode.turns else ""
    if said and not (episode.is_over or said[0].tool_calls or _text(said[0]) == played):
        await arun(episode.call(_said(_text(said[0]))))  # to a solver of inspect's
    state.store.set(_EPISODE, episode.scored_text)
    return await arun(episode.score())


def _said(text: str, *calls: ToolCall) -> Reply[None]:
    return Reply(text, None, Reading(text, calls=calls))


def _call(call: InspectCall) -> ToolCall:
    read = judged(call.function, call.arguments)
    return replace(read, arguments=None, problem=call.parse_error) if call.parse_error else read


def _caller(name: str) -> Callable[..., Any]:
    """What Inspect calls for a tool."""

    async def call(**kwargs: Any) -> str:
        episode = _played.get(store().get(_SAMPLE))
        if episode is None:
            raise UserError(f"tool {name}(): the solver must follow grpo_sdk.interop.inspect.begin(SPEC).")
        if episode.is_over:
            return NOT_RUN
        (told,) = await arun(episode.call(_said("", judged(name, kwargs))))
        return str(told["content"])

    return call


def _written_out(schema: Any, root: Mapping[str, Any], depth: int = 0) -> Any:
    """A schema in the words that Inspect has; what is nested deeper than it says is any object."""
    if isinstance(schema, list):
        return [_written_out(each, root, depth) for each in schema]
    if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
        return {"type": "object"} if isinstance(schema, Mapping) else schema
    if reference := schema.get("$ref"):
        schema = {**pointed(root, reference), **schema}
    written = {_WORDS.get(key, key): value for key, value in schema.items() if key not in ("$ref", "$defs")}
    if "const" in schema:
        written["enum"] = [schema["const"]]
    if "properties" in schema:
        inner = schema["properties"].items()
        written["properties"] = {name: _written_out(each, root, depth + 1) for name, each in inner}
    for key in written.keys() & {"items", "anyOf", "additionalProperties"}:
        written[key] = _written_out(written[key], root, depth + 1)
    return written


async def _forget(state: TaskState) -> None:
    """Drop the episode of a sample, which is scored or has failed."""
    _played.pop(state.uuid, None)


def _adapter(spec: str) -> TaskAdapter:
    return check_replayable(shared_adapter(spec, "inspect", "episode", takes_tools="calls"))


def _chat(messages: Sequence[Mapping[str, Any]]) -> list[ChatMessage]:
    return [_message(**message) for message in messages]


def _message(
    role: str, content: str, reasoning_content: str = "", tool_calls: Sequence[Any] = (), name: str = "",
    tool_call_id: str | None = None,
) -> ChatMessage:  # fmt: skip
    if role == "tool":
        return ChatMessageTool(content=content, tool_call_id=tool_call_id, function=name)
    if role != "assistant":
        return {"system": ChatMessageSystem, "user": ChatMessageUser}[role](content=content)
    made = [(call["id"], call["function"]) for call in tool_calls]
    calls = [InspectCall(name, called["name"], json.loads(called["arguments"])) for name, called in made]
    return ChatMessageAssistant(content=answer_text(content, reasoning_content), tool_calls=calls or None)


def _is_sampled(message: ChatMessage) -> bool:
    return isinstance(message, ChatMessageAssistant) and message.source == "generate"


def _text(message: Any) -> str:
    """The text of a message, with the reasoning that inspect has split off."""
    if isinstance(message.content, str):
        return message.content
    reasoning = "".join(part.reasoning for part in message.content if isinstance(part, ContentReasoning))
    return answer_text(message.text, reasoning)
