"""Any task in ART (openpipe-art), as the rollout of a row.

    from grpo_sdk.interop.art import groups
    batch = await art.gather_trajectory_groups(groups(model, "math.gsm8k", rows, size=8), max_exceptions=0.2)
    await backend.train(model, batch)

Tools are called in text: a system message describes them, and results are messages of the user. ART's own form of calls
is not used: 0.5.18 writes each call twice into what it trains, as it was sampled and as the chat template writes it.

A completion that cannot be scored raises `UnscoredError`, which ART leaves out of its group as far as `max_exceptions`
allows; with its default of 0 it ends the batch. Read in openpipe-art 0.5.18.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grpo_sdk.episodes.player import arun
from grpo_sdk.interop.adapter import Conversation, RowReference, TaskAdapter, answer_text, requires, shared_adapter
from grpo_sdk.plugins.tasks import load_task
from grpo_sdk.scoring.parts import log_values
from grpo_sdk.task.row import Row

with requires("art", "pip install openpipe-art 'openai<3'"):
    from art import Model, Trajectory, TrajectoryGroup


def rows(task: str) -> list[Row]:
    """The rows of a task, for example for `art.utils.iterate_dataset`."""
    return load_task(task).rows()


def groups(model: Model, task: str, rows: Sequence[RowReference], size: int, **sampling: Any) -> list[Any]:
    """Groups of rollouts to gather, one for each row.

    Args:
        model: Model that is trained.
        task: Spec of the task.
        rows: Rows of the batch.
        size: Rollouts of a row.
        **sampling: Arguments of `chat.completions.create`: `temperature`, `max_completion_tokens`.

    Raises:
        UserError: ART cannot train the task.
    """
    _adapter(task)
    return [TrajectoryGroup(rollout(model, task, row, index, **sampling) for index in range(size)) for row in rows]


async def rollout(model: Model, task: str, row: RowReference, sample: int | None = None, **sampling: Any) -> Trajectory:
    """Let a model play an episode of a row: one completion, or turn after turn.

    Args:
        model: The model.
        task: Spec of the task.
        row: The row.
        sample: Number of the rollout among those of the row, for the random numbers of an opponent.
        **sampling: Arguments of `chat.completions.create`.

    Returns:
        A trajectory with the reward; `solved`, `valid` and every part are its metrics.

    Raises:
        UnscoredError: the episode cannot be scored.
    """
    adapter = _adapter(task)
    conversation = Conversation(adapter, row, sample)
    trajectory = Trajectory(metadata={"task": adapter.task.name, "row": adapter.row(row).id})
    following = await arun(conversation.begin())
    client, name = model.openai_client(), model.get_inference_name()
    limit = adapter.task.task.max_completion_length
    sampling = ({"max_completion_tokens": limit} if limit else {}) | sampling
    while not conversation.is_over:
        trajectory.messages_and_choices.extend(following)
        completion = await client.chat.completions.create(model=name, messages=trajectory.messages(), **sampling)
        choice = completion.choices[0]
        trajectory.messages_and_choices.append(choice)
        text = answer_text(choice.message.content, getattr(choice.message, "reasoning_content", None))
        following = await arun(conversation.reply(text, is_cut=choice.finish_reason == "length"))
    score = adapter.scored(await arun(conversation.score()))
    trajectory.reward = score.value
    trajectory.metrics.update(log_values(adapter.task, score))
    trajectory.log(score.why)
    return trajectory.finish()


def _adapter(task: str) -> TaskAdapter:
    return shared_adapter(task, "ART", "episode", takes_tools="text")
