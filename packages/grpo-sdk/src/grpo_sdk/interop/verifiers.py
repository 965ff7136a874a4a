"""Any task as a taskset of verifiers, for its evaluations and for prime-rl.

    vf-eval grpo-verifiers --env.taskset.spec math.gsm8k --model …

    [[orchestrator.train.source]]            # prime-rl
    name = "gsm8k"
    env.taskset.id = "grpo-verifiers"
    env.taskset.spec = "math.gsm8k"

`grpo_verifiers` is the package that verifiers finds by its id; it has what is here. The model is asked by the harness
without tools (`null`), turn after turn where the task has several. A completion that cannot be scored fails its episode
with a `TaskError`, which prime-rl leaves out of training and counts. Read in verifiers 0.4.0.
"""

from __future__ import annotations

from collections.abc import Iterator

from grpo_sdk.episodes.player import arun
from grpo_sdk.errors import UserError
from grpo_sdk.interop.adapter import Conversation, TaskAdapter, answer_text, check_replayable, requires, shared_adapter
from grpo_sdk.scoring.parts import log_values

with requires("verifiers", "pip install verifiers"):
    import verifiers.v1 as vf
    from verifiers.v1.dialects import parse_message
    from verifiers.v1.types import AssistantMessage

__all__ = ["GrpoEnv", "GrpoEnvConfig", "GrpoTask", "GrpoTaskset", "GrpoTasksetConfig"]


class RowData(vf.TaskData):
    """A row of a task.

    Attributes:
        spec: Spec of the task.
        row: The row as JSON.
    """

    spec: str
    row: str


class GrpoTask(vf.Task[RowData]):
    """A row of a task with its reward."""

    @vf.reward(weight=1.0)
    async def reward(self, trace: vf.Trace) -> float:
        """The task's reward; `solved`, `valid` and every part are metrics.

        Raises:
            UnscoredError: the completion cannot be scored.
        """
        adapter = _adapter(self.data.spec)
        texts = [answer_text(message.content, message.reasoning_content) for message in trace.assistant_messages]
        score = await arun(Conversation(adapter, self.data.row).replay(texts))
        value = adapter.value(score)
        trace.record_metrics(log_values(adapter.task, score))
        trace.info["why"] = score.why
        return value


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


class GrpoEnvConfig(vf.EnvConfig):
    """Configuration of the environment: one agent, which has no tools and so no need of a sandbox elsewhere."""

    agent: vf.AgentConfig = vf.AgentConfig(harness={"id": "null"}, runtime={"type": "subprocess"})


class GrpoEnv(vf.Env[GrpoEnvConfig]):
    """Asks the agent for one completion, or plays an episode of several turns with it."""

    async def run(self, task: GrpoTask, agents: vf.Agents) -> None:
        """Play an episode."""
        adapter = _adapter(task.data.spec)
        if not adapter.task.has_turns:
            await agents.agent.run(task)
            return
        conversation = Conversation(adapter, task.data.row)
        opening = await arun(conversation.begin())
        async with agents.agent.interaction(task) as interaction:
            segment = await interaction.turn(opening if task.data.prompt is None else None)
            while not segment.terminated:
                message = next(each for each in reversed(segment.messages) if isinstance(each, AssistantMessage))
                text = answer_text(message.content, message.reasoning_content)
                following = await arun(conversation.reply(text))
                if conversation.is_over:
                    break
                segment = await interaction.turn(following)


def _adapter(spec: str) -> TaskAdapter:
    return check_replayable(shared_adapter(spec, "verifiers", "episode"))
