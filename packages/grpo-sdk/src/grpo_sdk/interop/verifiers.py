"""Any task as a taskset of verifiers, for its evaluations and for prime-rl.

    vf-eval grpo-verifiers --env.taskset.spec math.gsm8k --model …

    [[orchestrator.train.source]]            # prime-rl
    name = "gsm8k"
    env.taskset.id = "grpo-verifiers"
    env.taskset.spec = "math.gsm8k"

`grpo_verifiers` is the package that verifiers finds by its id; it has what is here. The model is asked by the harness
that has no tools of its own (`null`), turn after turn where the task has several. A completion that cannot be scored
fails its episode with a `TaskError`, which prime-rl leaves out of training and counts. Read in verifiers 0.4.0.

A task with tools has a toolset, one server for all rollouts, from which the harness learns what can be called. Calls
are answered before it makes them, at the gate where verifiers asks a task about each: once, in our workers, whatever
the harness sends again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import PrivateAttr

from grpo_sdk.chat.json_calls import read_call
from grpo_sdk.episodes.episode import Reply
from grpo_sdk.episodes.player import arun
from grpo_sdk.errors import UserError
from grpo_sdk.interop.adapter import Conversation, TaskAdapter, answer_text, check_replayable, requires, shared_adapter
from grpo_sdk.plugins.tasks import load_task
from grpo_sdk.scoring.parts import log_values
from grpo_sdk.task.score import Score
from grpo_sdk.task.tools.calls import Reading, ToolCall
from grpo_sdk.task.tools.tool import listed_tools

with requires("verifiers", "pip install verifiers"):
    import verifiers.v1 as vf
    from verifiers.v1.dialects import parse_message
    from verifiers.v1.types import AssistantMessage, Request, ToolMessage

__all__ = ["GrpoEnv", "GrpoEnvConfig", "GrpoTask", "GrpoTaskset", "GrpoTasksetConfig", "GrpoToolset"]


class RowData(vf.TaskData):
    """A row of a task.

    Attributes:
        spec: Spec of the task.
        row: The row as JSON.
    """

    spec: str
    row: str


class EpisodeState(vf.State):
    """The episode of a rollout with tools, in this process alone.

    Attributes:
        played: The episode; None in a task without tools, and of a trace that was stored.
        answers: Results of the calls of the last completion that the harness has not asked for.
    """

    _played: Conversation | None = PrivateAttr(None)
    _answers: list[str] = PrivateAttr(default_factory=list)


class GrpoTask(vf.Task[RowData, EpisodeState]):
    """A row of a task with its reward, and the calls of its tools."""

    async def setup(self, trace: vf.Trace, runtime: vf.Runtime) -> None:
        """Begin an episode with tools; what `reset()` adds follows the prompt."""
        adapter = _adapter(self.data.spec)
        if adapter.task.task.has_tools:
            trace.state._played = Conversation(adapter, self.data.row)
            opened = [parse_message(message) for message in await arun(trace.state._played.begin())]
            trace.task.data = self.data.model_copy(update={"prompt": opened})

    @vf.intercept
    async def answer_call(self, request: Request, trace: vf.Trace) -> Request | None:
        """Answer a call that the model has made, in place of the harness."""
        state: EpisodeState = trace.state
        asked, said = request.messages[-1], request.messages[-2:-1]
        if state._played is None or not isinstance(asked, ToolMessage) or asked.content:
            return None
        if not state._answers:  # the first call of a completion: all of them run
            (message,) = said
            made = message.tool_calls[[call.id for call in message.tool_calls].index(asked.tool_call_id) :]
            calls = [read_call({"function": {"name": call.name, "arguments": call.arguments}}) for call in made]
            following = await arun(state._played.call(_said(message, calls)))
            state._answers = [each["content"] for each in following]
        # An empty one would be no answer, and the harness would make the call.
        request.messages[-1] = asked.model_copy(update={"content": state._answers.pop(0) or " "})
        return request

    @vf.stop
    async def is_over(self, request: Request, trace: vf.Trace) -> bool:
        """End the rollout when its episode is over."""
        played = trace.state._played
        return played is not None and played.is_over

    @vf.reward(weight=1.0)
    async def reward(self, trace: vf.Trace) -> float:
        """The task's reward; `solved`, `valid` and every part are metrics.

        Raises:
            UnscoredError: the completion cannot be scored.
        """
        adapter = _adapter(self.data.spec)
        if adapter.task.task.has_tools:
            score = await _tool_score(adapter, self.data.row, trace)
        else:
            texts = [_text(message) for message in trace.assistant_messages]
            score = await arun(Conversation(adapter, self.data.row).replay(texts))
        value = adapter.value(score)
        trace.record_metrics(log_values(adapter.task, score))
        trace.info["why"] = score.why
        return value


async def _tool_score(adapter: TaskAdapter, row: str, trace: vf.Trace) -> Score:
    """The score of an episode with tools, by the state that its calls have left, or by repeating a stored one."""
    played, said = trace.state._played, trace.assistant_messages
    if trace.stop_condition == GrpoTask.answer_call.__name__:
        raise UserError(
            f"task {adapter.task.name!r}: this harness makes calls without asking whether it may, so that they are "
            "not answered here. Take null, which has no tools of its own."
        )
    if played is None:
        return await arun(Conversation(adapter, row).score_again(trace.info.get("episode", "")))
    if len(said) > len(played.episode.turns) and not played.is_over and not said[-1].tool_calls:
        await arun(played.call(_said(said[-1])))
    trace.info["episode"] = played.scored_text
    return await arun(played.score())


class GrpoToolsetConfig(vf.SharedToolsetConfig):
    """Configuration of the toolset.

    Attributes:
        spec: Spec of the task.
    """

    spec: str = ""


class GrpoToolset(vf.Toolset[GrpoToolsetConfig, vf.State]):
    """The server that tells harnesses a task's tools, by their own names; it runs none."""

    TOOL_PREFIX = None

    def register(self, mcp: Any) -> None:
        """Say what can be called."""
        from mcp_types import Tool

        listed = [Tool(**each) for each in listed_tools(load_task(self.config.spec).task.all_tools())]

        async def list_tools() -> list[Tool]:
            return listed

        async def call_tool(name: str, arguments: dict[str, Any], context: Any = None) -> Any:
            raise ValueError("this harness calls tools without asking whether it may")

        mcp.list_tools, mcp.call_tool = list_tools, call_tool  # add_tool() would make schemas of its own


class GrpoTasksetConfig(vf.TasksetConfig):
    """Configuration of the taskset.

    Attributes:
        spec: Spec of the task: `math.gsm8k?split=train`.
    """

    spec: str = ""


class GrpoTaskset(vf.Taskset[GrpoTask, GrpoTasksetConfig]):
    """The rows of a task."""

    def load(self) -> Iterator[GrpoTask]:
        """Yield the rows.

        Raises:
            UserError: there is no spec, or verifiers cannot run the task.
        """
        if not self.config.spec:
            raise UserError("no task: give --env.taskset.spec, e.g. math.gsm8k; `grpo tasks` lists them.")
        adapter = _adapter(self.config.spec)
        is_game = adapter.task.task.game is not None
        for row in adapter.task.rows():
            prompt = None if is_game else [parse_message(message) for message in adapter.first_messages(row)]
            data = RowData(id=row.id, name=row.id, prompt=prompt, spec=adapter.task.spec, row=row.model_dump_json())
            yield GrpoTask(data, self.config.task)

    @classmethod
    def toolsets(cls, config: GrpoTasksetConfig) -> list[vf.Toolset]:
        """The task's tools, if it has any."""
        task = _adapter(config.spec).task
        return [GrpoToolset(GrpoToolsetConfig(spec=task.spec))] if task.task.has_tools else []


class GrpoEnvConfig(vf.EnvConfig):
    """Configuration of the environment: one agent, which has no tools and so no need of a sandbox elsewhere."""

    agent: vf.AgentConfig = vf.AgentConfig(harness={"id": "null"}, runtime={"type": "subprocess"})


class GrpoEnv(vf.Env[GrpoEnvConfig]):
    """Asks the agent for one completion, or plays an episode of several turns with it."""

    async def run(self, task: GrpoTask, agents: vf.Agents) -> None:
        """Play an episode."""
        adapter = _adapter(task.data.spec)
        own = adapter.task.task
        if not adapter.task.has_turns or (own.has_tools and own.ends == "no_call"):
            await agents.agent.run(task)
            return
        conversation = Conversation(adapter, task.data.row)
        opening = [] if own.has_tools else await arun(conversation.begin())
        async with agents.agent.interaction(task) as interaction:
            segment = await interaction.turn(opening if task.data.prompt is None else None)
            conversation = interaction.trace.state._played if own.has_tools else conversation
            while not (segment.terminated or conversation.is_over):
                message = next(each for each in reversed(segment.messages) if isinstance(each, AssistantMessage))
                following = await arun(conversation.reply(_said(message) if own.has_tools else _text(message)))
                if conversation.is_over:
                    break
                segment = await interaction.turn(following)


def _said(message: AssistantMessage, calls: Sequence[ToolCall] = ()) -> Reply[None]:
    return Reply(_text(message), None, Reading(_text(message), calls=tuple(calls)))


def _text(message: AssistantMessage) -> str:
    return answer_text(message.content, message.reasoning_content)


def _adapter(spec: str) -> TaskAdapter:
    return check_replayable(shared_adapter(spec, "verifiers", "episode", takes_tools="calls"))


if __name__ == "__main__":
    GrpoToolset.run()
