"""Writing `logs/rollouts.jsonl`; `grpo_core.tracking.rollouts` reads it and says what each field is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from grpo_core.rollouts.rollout import Rollout
from grpo_core.task.row import Prompt
from grpo_core.tracking.base import plain
from grpo_core.tracking.rollouts import DifficultyTag


@dataclass(frozen=True, slots=True)
class GroupOrigin:
    """Where a group came from.

    Attributes:
        prompt_id: Names the prompt in the run's sampling keys.
        prompt: As the task wrote it.
        pass_rate: The prompt's moving average in a curriculum, this group's result included; None without one.
    """

    prompt_id: str
    prompt: Prompt
    pass_rate: float | None


@dataclass(frozen=True, slots=True)
class BatchOrigin:
    """What a step's rollouts do not say of themselves.

    Attributes:
        groups: By index of the group.
        rewards: Of each rollout, NaN where it abstained.
        think_tokens: Of each rollout.
        generate_s: Seconds in which all were sampled.
        boundaries: Pass rates that separate hard from normal and normal from easy.
        masks_truncated: Whether truncated completions are left out of the loss.
        logs_tokens: Whether each token's log-prob is written.
        conditions: Of each task, by its spec: what on this machine its scores depend on.
    """

    groups: Sequence[GroupOrigin]
    rewards: Sequence[float]
    think_tokens: Sequence[int]
    generate_s: float
    boundaries: tuple[float, float]
    masks_truncated: bool
    logs_tokens: bool
    conditions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def rollout_lines(
    step: int, rollouts: Sequence[Rollout], identities: Mapping[str, str], origin: BatchOrigin | None = None
) -> Iterator[bytes]:
    """The lines of a step's completions.

    Args:
        step: From 1.
        rollouts: Scored.
        identities: Of each task, by its spec.
        origin: What else is known of them.
    """
    solved = _group_rates(rollouts)
    for index, rollout in enumerate(rollouts):
        record = _of_itself(step, rollout, identities[rollout.spec])
        if origin is not None:
            record |= _of_batch(index, rollout, origin, solved.get(rollout.group))
        yield _dumped(record) + b"\n"


def _of_itself(step: int, rollout: Rollout, identity: str) -> dict[str, Any]:
    score = rollout.score
    return {
        "step": step,
        "task": rollout.spec,
        "identity": identity,
        "group": rollout.group,
        **({"role": rollout.role} if rollout.role else {}),
        **({"turns": len(rollout.turns)} if len(rollout.turns) != 1 else {}),
        "row": rollout.row.model_dump(mode="json"),
        "text": rollout.text,
        "tokens": rollout.n_tokens,
        "finish_reason": "length" if rollout.is_truncated else "stop",
        "logprob": math.fsum(rollout.logprobs),
        "status": rollout.status,
        "score": score and {name: getattr(score, name) for name in score.__slots__},
    }


def _of_batch(index: int, rollout: Rollout, origin: BatchOrigin, group_rate: float | None) -> dict[str, Any]:
    group = origin.groups[rollout.group]
    rate = group_rate if group.pass_rate is None else group.pass_rate
    is_masked = origin.masks_truncated and rollout.is_truncated
    known: dict[str, Any] = {
        "prompt_id": group.prompt_id,
        "prompt": group.prompt,
        "reward": origin.rewards[index],  # orjson writes NaN as null
        "included": rollout.status == "scored" and not is_masked,
        "pass_rate": rate,
        "difficulty": None if rate is None else difficulty_of(rate, origin.boundaries),
        "think_tokens": origin.think_tokens[index],
        "generate_s": round(origin.generate_s, 6),
    }
    if conditions := origin.conditions.get(rollout.spec):
        known["conditions"] = dict(conditions)
    if origin.logs_tokens:
        known["token_logprobs"] = rollout.logprobs
    return known


def difficulty_of(pass_rate: float, boundaries: tuple[float, float]) -> DifficultyTag:
    """`hard` below the first boundary, `easy` above the second, else `normal`."""
    low, high = boundaries
    return "hard" if pass_rate < low else "easy" if pass_rate > high else "normal"


def _group_rates(rollouts: Sequence[Rollout]) -> dict[int, float]:
    """Share of each group's scored completions that solved; a group without any has none."""
    counts: dict[int, list[int]] = {}
    for rollout in rollouts:
        if rollout.score is not None and not rollout.score.abstained:
            counts.setdefault(rollout.group, []).append(rollout.score.solved)
    return {group: sum(each) / len(each) for group, each in counts.items()}


def _dumped(record: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(record)
    except orjson.JSONEncodeError:  # a lone surrogate, which JSON cannot carry
        return orjson.dumps(_plain(record))


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, Mapping):
        return {plain(str(key)): _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value
