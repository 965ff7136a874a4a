"""Rollouts on their way from the rank that sampled them to the others: JSON, in ASCII, so that any text survives."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from grpo_core.rollout import Completion, Rollout, Turn
from grpo_core.task import Score
from grpo_core.training.rollouts import Prompted


def packed(rollouts: Sequence[Rollout], first_group: int) -> bytes:
    """Rollouts as bytes; their groups are counted from `first_group` on. Rows and prompts every rank has itself."""
    records = []
    for rollout in rollouts:
        assert rollout.score is not None and len(rollout.turns) == 1
        group = rollout.group + first_group
        records.append([group, asdict(rollout.turns[0].completion), asdict(rollout.score)])
    return json.dumps(records).encode("ascii")  # orjson refuses lone surrogates


def unpacked(data: bytes, prompted: Sequence[Prompted]) -> list[Rollout]:
    """Rollouts of a rank's bytes.

    Args:
        data: Of `packed`.
        prompted: The prompts of all ranks, by group.
    """
    rollouts = []
    for group, completion, score in json.loads(data):
        one = prompted[group]
        tuples = {name: tuple(completion[name]) for name in ("token_ids", "logprobs")}
        made = Completion(**{**completion, **tuples})
        value = Score(**score)
        rollouts.append(
            Rollout(
                spec=one.draw.task.spec,
                row=one.draw.row,
                group=group,
                role="",
                turns=(Turn(one.prompt_ids, made, trained=True),),
                score=value,
                status="abstained" if value.abstained else "scored",
            )
        )
    return rollouts
