"""Rollouts on their way from the rank that sampled them to the others: JSON, in ASCII, so that any text survives."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from grpo_core.rollouts.prompt_group import PromptGroup, rollout_of
from grpo_core.rollouts.rollout import Rollout, Turn
from grpo_sdk.endpoints.completion import Completion
from grpo_sdk.task.score import Score


def packed(rollouts: Sequence[Rollout], first_group: int) -> bytes:
    """Encode rollouts, whose groups are counted from `first_group` on; rows and prompts every rank has itself."""
    records = []
    for rollout in rollouts:
        assert rollout.score is not None
        turns = [asdict(turn) for turn in rollout.turns]
        if turns and not rollout.role:
            turns[0]["prompt_ids"] = None  # that of the group; in a game, each player sees its own
        scored = {"scored_text": rollout.scored_text, "predictions": rollout.predictions}
        records.append([rollout.group + first_group, turns, asdict(rollout.score), rollout.messages, scored])
    return json.dumps(records).encode("ascii")  # orjson refuses lone surrogates


def unpacked(data: bytes, groups: Sequence[PromptGroup]) -> list[Rollout]:
    """Decode the rollouts of one rank.

    Args:
        data: Result of `packed`.
        groups: The prompts of all ranks, by group.
    """
    rollouts = []
    for number, turns, score, messages, scored in json.loads(data):
        group = groups[number]
        answered = tuple(_turn(turn, group.prompt_ids) for turn in turns)
        rollouts.append(rollout_of(group, number, answered, Score(**score), messages, **scored))
    return rollouts


def _turn(record: Mapping[str, Any], first_prompt: tuple[int, ...]) -> Turn:
    completion, prompt = record["completion"], record["prompt_ids"]
    tuples = {name: tuple(completion[name]) for name in ("token_ids", "logprobs")}
    return Turn(
        first_prompt if prompt is None else tuple(prompt),
        Completion(**{**completion, **tuples}),
        trained=record["trained"],
    )
