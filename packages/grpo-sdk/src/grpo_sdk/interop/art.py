"""Any task in ART (openpipe-art), as the rollout of a row.

    from grpo_sdk.interop.art import groups
    batch = await art.gather_trajectory_groups(groups(model, "math.gsm8k", rows, size=8), max_exceptions=0.2)
    await backend.train(model, batch)

Tools are called in text, as every model can: a system message describes them, results are messages of the user. With
`native_tools=True` the server shows them to the model and reads its calls, as vLLM does by `tool_call_parser`.

A completion that cannot be scored raises `UnscoredError`, which ART leaves out of its group as far as `max_exceptions`
allows; with its default of 0 it ends the batch. Read in openpipe-art 0.5.18.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grpo_sdk.chat.json_calls import read_answer
from grpo_sdk.episodes.episode import Reply
from grpo_sdk.episodes.player import arun
from grpo_sdk.interop.adapter import Conversation, RowReference, TaskAdapter, answer_text, requires, shared_adapter
from grpo_sdk.plugins.tasks import load_task
from grpo_sdk.scoring.parts import log_values
from grpo_sdk.task.row import Row

with requires("art", "pip install openpipe-art"):
    from art import Model, Trajectory, TrajectoryGroup


def rows(task: str) -> list[Row]:
    """The rows of a task, for example for `art.utils.iterate_dataset`."""
    return load_task(task).rows()


def groups(
    model: Model, task: str, rows: Sequence[RowReference], size: int, *, native_tools: bool = False, **sampling: Any
) -> list[Any]:
    """Groups of rollouts to gather, one for each row.

    Args:
        model: Model that is trained.
        task: Spec of the task.
        rows: Rows of the batch.
        size: Rollouts of a row.
        native_tools: Whether the server gets the task's tools.
        **sampling: Arguments of `chat.completions.create`: `temperature`, `max_completion_tokens`.

    Raises:
        UserError: ART cannot train the task.
    """
    _adapter(task)
    sampling |= {"native_tools": native_tools}
    return [TrajectoryGroup(rollout(model, task, row, index, **sampling) for index in range(size)) for row in rows]


async def rollout(
    model: Model,
    task: str,
    row: RowReference,
    sample: int | None = None,
    *,
    native_tools: bool = False,
    **sampling: Any,
) -> Trajectory:
    """Let a model play an episode of a row: one completion, or turn after turn.

    Args:
        model: The model.
        task: Spec of the task.
        row: The row.
        sample: Number of the rollout among those of the row, for the random numbers of an opponent.
        native_tools: Whether the server gets the task's tools.
        **sampling: Arguments of `chat.completions.create`.

    Returns:
        A trajectory with the reward; `solved`, `valid` and every part are its metrics.

    Raises:
        UnscoredError: the episode cannot be scored.
    """
    adapter = _adapter(task)
    conversation = Conversation(adapter, row, sample)
    trajectory = Trajectory(metadata={"task": adapter.task.name, "row": adapter.row(row).id})
    following = await arun(conversation.begin(describes=not native_tools))
    client, name = model.openai_client(), model.get_inference_name()
    limit = adapter.task.task.max_completion_length
    sampling = ({"max_completion_tokens": limit} if limit else {}) | sampling
    has_tools = adapter.task.task.has_tools
    if has_tools and native_tools:
        trajectory.tools = sampling["tools"] = [tool.spec for tool in adapter.task.task.all_tools()]
    while not conversation.is_over:
        trajectory.messages_and_choices.extend(following)
        completion = await client.chat.completions.create(model=name, messages=trajectory.messages(), **sampling)
        choice = completion.choices[0]
        trajectory.messages_and_choices.append(choice)
        text = answer_text(choice.message.content, getattr(choice.message, "reasoning_content", None))
        if not has_tools:
            following = await arun(conversation.reply(text))
            continue
        calls = [call.model_dump() for call in choice.message.tool_calls or ()]
        prompt, is_cut = conversation.episode.prompt, choice.finish_reason == "length"
        said = Reply(text := adapter.completion(text), None, read_answer(text, calls, prompt, is_cut=is_cut))
        following = await arun(conversation.reply(said))
        if calls and following:
            results = conversation.episode.state.moves[-1].results()
            following = [
                {"role": "tool", "content": result["content"], "tool_call_id": call["id"]}
                for call, result in zip(calls, results, strict=False)
            ]
    score = adapter.scored(await arun(conversation.score()))
    trajectory.reward = score.value
    trajectory.metrics.update(log_values(adapter.task, score))
    trajectory.log(score.why)
    return trajectory.finish()


def _adapter(task: str) -> TaskAdapter:
    return shared_adapter(task, "ART", "episode", takes_tools="text")
