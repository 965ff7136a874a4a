"""Drawn prompts: the groups of rollouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grpo_core.rollouts.rollout import Rollout, Turn
from grpo_sdk.task.mixture import Draw
from grpo_sdk.task.row import Message
from grpo_sdk.task.score import Score


@dataclass(frozen=True, slots=True)
class PromptGroup:
    """A drawn prompt with its tokens: one group of rollouts.

    Attributes:
        draw: The prompt; an episode that the policy plays alone gives a group for each role.
        prompt_ids: Tokens of the first turn's prompt.
        role: Role that the policy plays in these rollouts; empty in a task that is no game.
    """

    draw: Draw
    prompt_ids: tuple[int, ...]
    role: str = ""


def rollout_of(
    group: PromptGroup,
    number: int,
    turns: tuple[Turn, ...],
    score: Score,
    messages: Sequence[Message] = (),
    *,
    scored_text: str | None,
    predictions: Sequence[str] | None = None,
) -> Rollout:
    """Make a scored rollout of a group, which has this number in the batch."""
    return Rollout(
        spec=group.draw.task.spec,
        row=group.draw.row,
        group=number,
        role=group.role,
        turns=turns,
        score=score,
        status="abstained" if score.abstained else "scored",
        messages=tuple(messages),
        scored_text=scored_text,
        predictions=None if predictions is None else tuple(predictions),
    )
