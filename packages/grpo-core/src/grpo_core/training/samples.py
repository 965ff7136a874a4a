"""Which completions of a step are shown while it trains."""

from __future__ import annotations

from collections.abc import Sequence

from grpo_core.callbacks import Sample
from grpo_core.rollouts.prompt_group import Prompted
from grpo_core.rollouts.rollout import Rollout

BETWEEN_TURNS = " · "
"""Between the answers of an episode, which are shown without what they were given to."""


def samples_of(prompted: Sequence[Prompted], rollouts: Sequence[Rollout], limit: int) -> list[Sample]:
    """Different completions of one group, of one whose rewards differ where there is one, since it shows most.

    Args:
        prompted: The step's groups.
        rollouts: Of them all, those of a group side by side and each group with as many.
        limit: Completions at most.
    """
    generations = len(rollouts) // len(prompted)
    groups = [rollouts[start : start + generations] for start in range(0, len(rollouts), generations)]

    def has_spread(index: int) -> bool:
        values = {rollout.score.value for rollout in groups[index] if rollout.score is not None}
        return len(values - {None}) > 1

    index = max(range(len(groups)), key=has_spread)
    draw = prompted[index].draw
    prompt = draw.task.prompt(draw.row)
    asked = prompt if isinstance(prompt, str) else prompt[-1]["content"]
    distinct = {BETWEEN_TURNS.join(turn.completion.text for turn in each.turns): each for each in groups[index]}
    chosen = list(distinct.items())[:limit]
    return [Sample(draw.label, asked, text, each.score) for text, each in chosen if each.score is not None]
