"""What the log of completions holds beside the completions: prompts, rewards, pass rates, thinking."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from grpo_core.config import RunConfig
from grpo_core.engines.completion import Completion
from grpo_core.prompts.curriculum import PassRateCurriculum
from grpo_core.prompts.mixture import Draw, Mixture
from grpo_core.tracking.rollout_lines import BatchOrigin, GroupOrigin
from grpo_core.training.collect import Collected

THINK_END = "</think>"
"""Ends what a reasoning model thinks, in every format of the reference systems."""


def batch_origin(
    config: RunConfig, mixture: Mixture, tokenizer: Any, collected: Collected, rewards: Sequence[float], seconds: float
) -> BatchOrigin:
    """What is known of a collected batch beside its rollouts.

    Args:
        config: Configuration of the run.
        mixture: Mixture that the prompts were drawn from.
        tokenizer: Tokenizer of the policy.
        collected: The batch.
        rewards: Reward of each rollout, NaN where it abstained.
        seconds: Seconds of sampling.
    """
    return BatchOrigin(
        groups=[_group(mixture, group.draw) for group in collected.groups],
        rewards=rewards,
        think_tokens=[
            sum(think_tokens(tokenizer, turn.completion) for turn in rollout.turns) for rollout in collected.rollouts
        ],
        generate_s=seconds,
        boundaries=config.curriculum.boundaries,
        masks_truncated=config.trainer.mask_truncated_completions,
        logs_tokens=config.tracking.token_logprobs,
        conditions={task.spec: task.conditions for task in mixture.tasks.values()},
    )


def think_tokens(tokenizer: Any, completion: Completion) -> int:
    """Tokens before the first `</think>`; 0 where there is none."""
    if THINK_END not in completion.text:
        return 0
    # The text of a prefix grows with its tokens, so the longest one before the tag is found by halving.
    before = completion.text.index(THINK_END)

    def chars(tokens: int) -> int:
        return len(tokenizer.decode(completion.token_ids[:tokens], skip_special_tokens=True))

    return bisect_right(range(len(completion.token_ids) + 1), before, key=chars) - 1


def _group(mixture: Mixture, draw: Draw) -> GroupOrigin:
    order = mixture.orders[draw.label]
    rate = order.pass_rate(draw.row.id) if isinstance(order, PassRateCurriculum) else None
    return GroupOrigin(draw.prompt_id, draw.task.prompt(draw.row), rate)
