"""Drawn prompts: the groups that rollouts are made for."""

from __future__ import annotations

from dataclasses import dataclass

from grpo_core.prompts.mixture import Draw
from grpo_core.rollouts.rollout import Rollout, Turn
from grpo_core.task.bound import BoundTask
from grpo_core.task.game import Episode
from grpo_core.task.row import Row
from grpo_core.task.score import Score


@dataclass(frozen=True, slots=True)
class PromptGroup:
    """A drawn prompt with its tokens: one group of rollouts.

    Attributes:
        draw: The prompt; an episode that the policy plays alone gives a group for each role.
        prompt_ids: What its first turn answers.
        role: Whose side of the episodes the group is; empty in a task that is no game.
    """

    draw: Draw
    prompt_ids: tuple[int, ...]
    role: str = ""


def learning_roles(task: BoundTask, row: Row) -> tuple[str, ...]:
    """The roles that the policy plays in an episode; one without a name in a task that is no game."""
    game = task.task.game
    if game is None:
        return ("",)
    assert isinstance(row, Episode)
    return (row.seat,) if row.seat else game.roles


def rollout_of(one: PromptGroup, group: int, turns: tuple[Turn, ...], score: Score, story: str = "") -> Rollout:
    """A scored rollout of a group."""
    return Rollout(
        spec=one.draw.task.spec,
        row=one.draw.row,
        group=group,
        role=one.role,
        turns=turns,
        score=score,
        status="abstained" if score.abstained else "scored",
        story=story,
    )
