"""What is logged and shown of a step's completions: metrics, by the names of docs/reference/metrics.md, and origins."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from statistics import correlation

import torch
from torch import Tensor

from grpo_core.algorithms.advantages.groups import zero_std_fraction
from grpo_core.algorithms.masking import masked_mean
from grpo_core.prompts.curriculum import PassRateCurriculum
from grpo_core.rollouts.rollout import PromptGroup, Rollout
from grpo_core.rollouts.thinking import think_tokens
from grpo_core.tracking.rollout_lines import BatchOrigin, GroupOrigin
from grpo_core.training.batch import TrainBatch
from grpo_core.training.collect import Collected
from grpo_core.training.setup import Setup
from grpo_sdk.callbacks import Sample
from grpo_sdk.task.score import Score, tool_seconds

COMPARED_PROMPTS, COMPARED_CHARS = 16, 500
"""Completions that are compared with each other, and their length: 120 pairs, about a millisecond."""


def rollout_metrics(
    rollouts: Sequence[Rollout], labels: Sequence[str], rewards: Tensor, batch: TrainBatch
) -> dict[str, float]:
    """Rewards, rates and lengths of a step, over all tasks and for each.

    Args:
        rollouts: Rollouts of the step.
        labels: Task label of each rollout.
        rewards: [N] float64, NaN where abstained.
        batch: The rollouts as tensors, with advantages.

    Returns:
        Metric name -> value; rates are over scored completions, `abstained` counts the others.
    """
    lengths = [rollout.n_tokens for rollout in rollouts]
    truncated = [rollout.is_truncated for rollout in rollouts]
    scored = rewards[~rewards.isnan()]
    groups = torch.tensor([rollout.group for rollout in rollouts])
    advantages = batch.advantages if batch.advantages.dim() == 1 else batch.advantages[batch.mask]
    scores = [rollout.score for rollout in rollouts]
    metrics = {
        "reward": float(scored.mean()) if len(scored) else float("nan"),
        "reward_min": float(scored.min()) if len(scored) else float("nan"),
        "reward_max": float(scored.max()) if len(scored) else float("nan"),
        "reward_std": float(scored.std()) if len(scored) > 1 else 0.0,
        **_rates(scores),
        "frac_reward_zero_std": zero_std_fraction(rewards, groups),
        "advantage_mean": float(advantages.mean()),
        "advantage_std": float(advantages.std()) if len(advantages) > 1 else 0.0,
        # An unbiased estimate over every completion; `entropy` is exact, over those with a gradient.
        "entropy/sampled": float(-batch.sampler_logprobs.sum() / max(1, sum(lengths))),
        "completions/mean_length": sum(lengths) / len(lengths),
        "completions/min_length": float(min(lengths)),
        "completions/max_length": float(max(lengths)),
        "completions/truncated_frac": sum(truncated) / len(truncated),
        **_similarity(rollouts),
        **_distinct(rollouts),
        **({"tools_s": sum(ran)} if (ran := tool_seconds(scores)) else {}),
    }
    for name, measured in (("kl", batch.snapshot.token_kl), ("kl/k3", batch.snapshot.token_k3)):
        if measured is not None:
            metrics[name] = float(masked_mean(measured, batch.mask))
    for label in dict.fromkeys(labels):
        own = [score for score, name in zip(scores, labels, strict=True) if name == label]
        values = [score.value for score in own if score.value is not None]
        metrics[f"task/{label}/reward"] = sum(values) / len(values) if values else float("nan")
        metrics.update({f"task/{label}/{name}": value for name, value in _rates(own).items()})
        places = [place for place, name in enumerate(labels) if name == label]
        metrics[f"task/{label}/frac_reward_zero_std"] = zero_std_fraction(rewards[places], groups[places])
        scored_here = [score for score in own if not score.abstained]
        for part in dict.fromkeys(part for score in scored_here for part in score.parts):
            pairs = [(score.parts[part], score.value) for score in scored_here if part in score.parts]
            raw, earned = zip(*pairs, strict=True)  # a server may name a part in some replies only
            metrics[f"task/{label}/part/{part}"] = sum(raw) / len(raw)
            if len(set(raw)) > 1 and len(set(earned)) > 1:
                metrics[f"task/{label}/part_correlation/{part}"] = correlation(raw, earned)
    return metrics


def _similarity(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """Mean similarity of completions of different prompts, in [0, 1]; left out where there is one prompt.

    The first completion of each of the first `COMPARED_PROMPTS` prompts, up to `COMPARED_CHARS`, with each other.
    """
    from rapidfuzz.distance import Levenshtein

    texts: dict[str, str] = {}
    for rollout in rollouts:
        if len(texts) == COMPARED_PROMPTS:
            break
        texts.setdefault(rollout.row.id, rollout.text[:COMPARED_CHARS])
    pairs = [Levenshtein.normalized_similarity(one, other) for one, other in combinations(texts.values(), 2)]
    return {"completions/similarity": sum(pairs) / len(pairs)} if pairs else {}


def _distinct(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """Mean over groups of (different texts − 1) / (completions − 1); left out where groups have one completion."""
    groups: dict[int, list[str]] = {}
    for rollout in rollouts:
        groups.setdefault(rollout.group, []).append(rollout.text)
    shares = [(len(set(texts)) - 1) / (len(texts) - 1) for texts in groups.values() if len(texts) > 1]
    return {"completions/distinct_frac": sum(shares) / len(shares)} if shares else {}


def _rates(scores: Sequence[Score]) -> dict[str, float]:
    scored = [score for score in scores if not score.abstained]
    count = max(1, len(scored))
    return {
        "solved_rate": sum(score.solved for score in scored) / count,
        "valid_rate": sum(score.valid for score in scored) / count,
        "abstained": float(len(scores) - len(scored)),
    }


def origin_of(setup: Setup, collected: Collected) -> BatchOrigin:
    """Facts for the log of completions: prompts, rewards, pass rates, thinking."""
    orders, tokenizer = setup.data.mixture.orders, setup.policy.tokenizer
    groups = []
    for draw in (group.draw for group in collected.groups):
        order = orders[draw.label]
        rate = order.pass_rate(draw.row.id) if isinstance(order, PassRateCurriculum) else None
        groups.append(GroupOrigin(draw.prompt_id, draw.task.prompt(draw.row), rate))
    return BatchOrigin(
        config=setup.config,
        groups=groups,
        rewards=collected.rewards.tolist(),
        think_tokens=[
            sum(think_tokens(tokenizer, turn.completion.text, turn.completion.token_ids) or 0 for turn in rollout.turns)
            for rollout in collected.rollouts
        ],
        generate_s=collected.generate_s,
        conditions={task.spec: task.conditions for task in setup.tasks.trained.values()},
        decode=lambda ids: tokenizer.batch_decode([[token] for token in ids]),
    )


def samples_of(groups: Sequence[PromptGroup], rollouts: Sequence[Rollout], limit: int) -> list[Sample]:
    """Different completions of one group: where possible of one whose rewards differ, since it shows most.

    Args:
        groups: Groups of the step.
        rollouts: Their rollouts, group by group, equally many of each.
        limit: Completions at most.
    """
    generations = len(rollouts) // len(groups)
    by_group = [rollouts[start : start + generations] for start in range(0, len(rollouts), generations)]
    values = [{rollout.score.value for rollout in own} - {None} for own in by_group]
    index = next((index for index, different in enumerate(values) if len(different) > 1), 0)
    draw = groups[index].draw
    prompt = draw.task.prompt(draw.row)
    question = prompt if isinstance(prompt, str) else prompt[-1]["content"]
    distinct = {
        "  ".join(
            f"{' '.join((each['role'], each.get('name', ''))).strip()}: {each['content'].strip()}"
            for each in rollout.messages
            if each["role"]
        )
        or rollout.text: rollout
        for rollout in by_group[index]
    }
    return [Sample(draw.label, question, text, rollout.score) for text, rollout in list(distinct.items())[:limit]]
