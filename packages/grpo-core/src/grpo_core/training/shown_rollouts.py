"""What is logged and shown of a step's completions, beside the completions themselves."""

from __future__ import annotations

from collections.abc import Sequence

from grpo_core.prompts.curriculum import PassRateCurriculum
from grpo_core.rollouts.rollout import PromptGroup, Rollout
from grpo_core.rollouts.thinking import think_tokens
from grpo_core.tracking.rollout_lines import BatchOrigin, GroupOrigin
from grpo_core.training.collect import Collected
from grpo_core.training.setup import Setup
from grpo_sdk.callbacks import Sample
from grpo_sdk.task.mixture import Draw, Mixture


def origin_of(setup: Setup, collected: Collected) -> BatchOrigin:
    """Facts for the log of completions: prompts, rewards, pass rates, thinking."""
    config, mixture, tokenizer = setup.config, setup.data.mixture, setup.policy.tokenizer
    return BatchOrigin(
        groups=[_group_origin(mixture, group.draw) for group in collected.groups],
        rewards=collected.rewards.tolist(),
        think_tokens=[
            sum(think_tokens(tokenizer, turn.completion.text, turn.completion.token_ids) for turn in rollout.turns)
            for rollout in collected.rollouts
        ],
        generate_s=collected.generate_s,
        boundaries=config.curriculum.boundaries,
        masks_truncated=config.trainer.mask_truncated_completions,
        logs_tokens=config.tracking.token_logprobs,
        conditions={task.spec: task.conditions for task in setup.tasks.trained.values()},
        decode=lambda ids: tokenizer.batch_decode([[token] for token in ids]),
    )


def _group_origin(mixture: Mixture, draw: Draw) -> GroupOrigin:
    order = mixture.orders[draw.label]
    rate = order.pass_rate(draw.row.id) if isinstance(order, PassRateCurriculum) else None
    return GroupOrigin(draw.prompt_id, draw.task.prompt(draw.row), rate)


def samples_of(groups: Sequence[PromptGroup], rollouts: Sequence[Rollout], limit: int) -> list[Sample]:
    """Different completions of one group: where possible of one whose rewards differ, since it shows most.

    Args:
        groups: Groups of the step.
        rollouts: Their rollouts, group by group, equally many of each.
        limit: Completions at most.
    """
    generations = len(rollouts) // len(groups)
    by_group = [rollouts[start : start + generations] for start in range(0, len(rollouts), generations)]

    def has_spread(index: int) -> bool:
        values = {rollout.score.value for rollout in by_group[index] if rollout.score is not None}
        return len(values - {None}) > 1

    index = max(range(len(by_group)), key=has_spread)
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
    chosen = list(distinct.items())[:limit]
    return [Sample(draw.label, question, text, rollout.score) for text, rollout in chosen if rollout.score is not None]
