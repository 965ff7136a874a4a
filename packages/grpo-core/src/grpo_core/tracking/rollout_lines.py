"""Writing `logs/rollouts.jsonl`; `grpo_sdk.records.rollouts` reads it and documents its fields."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from grpo_core.rollouts.rollout import Rollout
from grpo_core.tracking.base import plain
from grpo_sdk.records.rollouts import DifficultyTag
from grpo_sdk.task.row import Prompt

if TYPE_CHECKING:
    from grpo_core.config import RunConfig

MAX_TOKEN_CHARS = 64
"""Characters of a token that are written; the longest tokens of vocabularies are runs of spaces."""


@dataclass(frozen=True, slots=True)
class GroupOrigin:
    """Prompt of a group.

    Attributes:
        prompt_id: Identifier of the prompt in the run's sampling keys.
        prompt: The prompt, as the task returned it.
        pass_rate: Moving average of the prompt in a curriculum, including this group; None without a curriculum.
    """

    prompt_id: str
    prompt: Prompt
    pass_rate: float | None


@dataclass(frozen=True, slots=True)
class BatchOrigin:
    """Facts of a step's batch that its rollouts do not contain.

    Attributes:
        config: Configuration of the run.
        groups: Prompts by index of the group.
        rewards: Reward of each rollout; NaN where it abstained.
        think_tokens: Number of thinking tokens of each rollout.
        generate_s: Seconds in which the whole batch was sampled.
        conditions: Task spec -> facts of this machine that its scores depend on.
        decode: Token ids -> text of each.
    """

    config: RunConfig
    groups: Sequence[GroupOrigin]
    rewards: Sequence[float]
    think_tokens: Sequence[int]
    generate_s: float
    conditions: Mapping[str, Mapping[str, str]]
    decode: Callable[[Sequence[int]], Sequence[str]]


def rollout_lines(
    step: int, rollouts: Sequence[Rollout], identities: Mapping[str, str], origin: BatchOrigin
) -> Iterator[bytes]:
    """Yield the lines of a step's completions.

    Args:
        step: Step, from 1.
        rollouts: Scored rollouts.
        identities: Task spec -> identity.
        origin: Facts of the batch.
    """
    solved = _group_rates(rollouts)
    for index, rollout in enumerate(rollouts):
        fields = {"step": step, "task": rollout.spec, "identity": identities[rollout.spec], "group": rollout.group}
        fields |= _rollout_fields(rollout) | _batch_fields(index, rollout, origin, solved.get(rollout.group))
        try:
            line = orjson.dumps(fields)
        except orjson.JSONEncodeError:  # a lone surrogate, which JSON cannot represent
            line = orjson.dumps(_plain(fields))
        yield line + b"\n"


def _rollout_fields(rollout: Rollout) -> dict[str, Any]:
    score = rollout.score
    return {
        **({"role": rollout.role} if rollout.role else {}),
        **({"turns": len(rollout.turns)} if len(rollout.turns) != 1 else {}),
        **({"messages": rollout.messages} if rollout.messages else {}),
        **({"scored_text": rollout.scored_text} if rollout.scored_text not in (None, rollout.text) else {}),
        **({"predictions": rollout.predictions} if rollout.predictions is not None else {}),
        "row": rollout.row.model_dump(mode="json"),
        "text": rollout.text,
        "tokens": rollout.n_tokens,
        "finish_reason": "length" if rollout.is_truncated else "stop",
        "logprob": math.fsum(rollout.logprobs),
        "status": "abstained" if score.abstained else "scored",
        "score": score.as_json(),
        **({"score_s": {name: round(s, 6) for name, s in score.seconds.items()}} if score.seconds else {}),
    }


def _batch_fields(index: int, rollout: Rollout, origin: BatchOrigin, group_rate: float | None) -> dict[str, Any]:
    group = origin.groups[rollout.group]
    rate = group_rate if group.pass_rate is None else group.pass_rate
    is_masked = origin.config.trainer.mask_truncated_completions and rollout.is_truncated
    fields: dict[str, Any] = {
        "prompt_id": group.prompt_id,
        "prompt": group.prompt,
        "reward": origin.rewards[index],  # orjson writes NaN as null
        "included": not rollout.score.abstained and not is_masked,
        "pass_rate": rate,
        "difficulty": None if rate is None else difficulty_of(rate, origin.config.curriculum.boundaries),
        "think_tokens": origin.think_tokens[index],
        "generate_s": round(origin.generate_s, 6),
    }
    if conditions := origin.conditions.get(rollout.spec):
        fields["conditions"] = dict(conditions)
    if origin.config.tracking.token_logprobs:
        ids = [token for turn in rollout.turns for token in turn.completion.token_ids]
        fields["token_logprobs"] = rollout.logprobs
        fields["token_texts"] = [text[:MAX_TOKEN_CHARS] for text in origin.decode(ids)]
    return fields


def difficulty_of(pass_rate: float, boundaries: tuple[float, float]) -> DifficultyTag:
    """Return `hard` below the first boundary, `easy` above the second, else `normal`."""
    low, high = boundaries
    return "hard" if pass_rate < low else "easy" if pass_rate > high else "normal"


def _group_rates(rollouts: Sequence[Rollout]) -> dict[int, float]:
    """Return the share of solved completions of each group that has scored ones."""
    counts: dict[int, list[int]] = {}
    for rollout in rollouts:
        if not rollout.score.abstained:
            counts.setdefault(rollout.group, []).append(rollout.score.solved)
    return {group: sum(each) / len(each) for group, each in counts.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, Mapping):
        return {plain(str(key)): _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value
