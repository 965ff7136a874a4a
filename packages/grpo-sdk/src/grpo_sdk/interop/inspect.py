"""Any task as an evaluation of inspect-ai, with its scorer, several turns and games included.

    inspect eval grpo_sdk/task -T spec=math.gsm8k?split=test --model openai/gpt-5

    from grpo_sdk.interop.inspect import task
    inspect_ai.eval(task("math.gsm8k?split=test"), model="vllm/Qwen/Qwen3-0.6B")

A completion that cannot be scored is unscored: it is in the log with its reason, and in no metric. `inspect score
LOG --scorer grpo_sdk/score` scores a log again. Read in inspect-ai 0.3.285.
"""

from __future__ import annotations

from typing import Any

from grpo_sdk.episodes.player import arun
from grpo_sdk.errors import UnscoredError
from grpo_sdk.interop.adapter import (
    Conversation,
    Messages,
    RowReference,
    TaskAdapter,
    answer_text,
    check_replayable,
    requires,
    shared_adapter,
)
from grpo_sdk.scoring.parts import log_values

with requires("inspect_ai", "pip install inspect-ai"):
    from inspect_ai import Task
    from inspect_ai import task as inspect_task
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.model import (
        ChatMessage,
        ChatMessageAssistant,
        ChatMessageSystem,
        ChatMessageUser,
        ContentReasoning,
        GenerateConfig,
    )
    from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
    from inspect_ai.solver import Generate, Solver, TaskState, solver


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
        solver=play(spec),
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
def play(spec: str) -> Solver:
    """Let the model play an episode: one completion, or turn after turn."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
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
            own = adapter.scored(await arun(Conversation(adapter, state.metadata["row"]).replay(texts)))
        except UnscoredError as error:
            return Score.unscored(reason="scoring_failed", answer="".join(texts[-1:]), explanation=str(error))
        value = {"reward": own.value, **log_values(adapter.task, own)}
        return Score(value=value, answer=texts[-1], explanation=own.why)

    return score_sample


def _adapter(spec: str) -> TaskAdapter:
    return check_replayable(shared_adapter(spec, "inspect", "episode"))


def _chat(messages: Messages) -> list[ChatMessage]:
    kinds = {"system": ChatMessageSystem, "user": ChatMessageUser, "assistant": ChatMessageAssistant}
    return [kinds[message["role"]](content=message["content"]) for message in messages]


def _is_sampled(message: ChatMessage) -> bool:
    return isinstance(message, ChatMessageAssistant) and message.source == "generate"


def _text(message: Any) -> str:
    """The text of a message, with the reasoning that inspect has split off."""
    if isinstance(message.content, str):
        return message.content
    reasoning = "".join(part.reasoning for part in message.content if isinstance(part, ContentReasoning))
    return answer_text(message.text, reasoning)
