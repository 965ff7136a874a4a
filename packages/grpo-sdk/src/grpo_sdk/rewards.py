"""Reward building blocks that any code can import: composers, shaping, format and length rewards."""

from __future__ import annotations

import re
from collections.abc import Sequence

from grpo_sdk.errors import UserError
from grpo_sdk.task.composition import (
    GRADUATED_LEVELS,
    GRADUATED_THRESHOLDS,
    Composer,
    RewardSpec,
    Shaping,
    graduated,
    ladder,
    reward,
    shape,
    weighted_sum,
)
from grpo_sdk.task.group_rewards import diversity, group_reward, pairwise_ranking
from grpo_sdk.task.marks import cut_at_stop, marked_answers, outside_thinking, tags

__all__ = [
    "GRADUATED_LEVELS",
    "GRADUATED_THRESHOLDS",
    "Composer",
    "RewardSpec",
    "Shaping",
    "answer_block",
    "cut_at_stop",
    "diversity",
    "graduated",
    "group_reward",
    "ladder",
    "length_penalty",
    "marked_answers",
    "outside_thinking",
    "pairwise_ranking",
    "reward",
    "shape",
    "soft_overlong",
    "weighted_sum",
    "xml_format",
]


def length_penalty(text: str, *, free_chars: int = 50, max_chars: int = 200, most: float = 0.1) -> float:
    """Penalise long text: 0 up to `free_chars`, falling linearly to −`most` at `max_chars`, then constant.

    Args:
        text: The completion.
        free_chars: Characters that cost nothing.
        max_chars: Characters from which the whole penalty applies; above `free_chars`.
        most: The largest penalty, at least 0.

    Returns:
        A value in [−most, 0].

    Examples:
        >>> from grpo_sdk.rewards import length_penalty
        >>> length_penalty("short"), length_penalty("x" * 500)
        (-0.0, -0.1)
    """
    if not 0 <= free_chars < max_chars or most < 0:
        raise UserError(
            f"length_penalty(free_chars={free_chars}, max_chars={max_chars}, most={most}): "
            "need 0 <= free_chars < max_chars and most >= 0."
        )
    excess = (len(text) - free_chars) / (max_chars - free_chars)
    return -most * min(1.0, max(0.0, excess))


def soft_overlong(length: int, *, max_length: int, buffer: int) -> float:
    """Penalise a completion that nears its token limit (DAPO, arXiv 2503.14476, eq. 13).

    0 up to max_length − buffer; (max_length − buffer − length) / buffer up to max_length; −1 beyond.

    Args:
        length: Tokens of the completion.
        max_length: The limit.
        buffer: Tokens before the limit in which the penalty grows; 1 to `max_length`.

    Returns:
        A value in [−1, 0].

    Examples:
        >>> from grpo_sdk.rewards import soft_overlong
        >>> soft_overlong(900, max_length=1000, buffer=200), soft_overlong(1001, max_length=1000, buffer=200)
        (-0.5, -1.0)
    """
    if not 1 <= buffer <= max_length:
        raise UserError(f"soft_overlong(buffer={buffer}, max_length={max_length}): need 1 <= buffer <= max_length.")
    return -min(1.0, max(0.0, (length - (max_length - buffer)) / buffer))


def xml_format(text: str, *, tags: Sequence[str] = ("think", "answer"), opened: str | None = None) -> float:
    """Reward the form `<a>…</a> <b>…</b>`: each tag once, in order, nothing but white space around them.

    Args:
        text: The completion.
        tags: The tags, in order.
        opened: A tag that the prompt has opened already (the first of `tags`), so that the completion starts inside.

    Returns:
        1.0 or 0.0.

    Examples:
        >>> from grpo_sdk.rewards import xml_format
        >>> xml_format("<think>2 + 2</think> <answer>4</answer>"), xml_format("<answer>4</answer>")
        (1.0, 0.0)
    """
    if opened is not None:
        if not tags or opened != tags[0]:
            raise UserError(f"xml_format(opened={opened!r}): the prompt can only open the first of {tuple(tags)}.")
        text = f"<{opened}>{text}"
    rest = text
    for tag in tags:
        start, end = f"<{tag}>", f"</{tag}>"
        if text.count(start) != 1 or text.count(end) != 1:
            return 0.0
        before, _, rest = rest.partition(start)
        if before.strip() or end not in rest:
            return 0.0
        inside, _, rest = rest.partition(end)
        if any(re.search(rf"</?{re.escape(other)}>", inside) for other in tags):
            return 0.0
    return 0.0 if rest.strip() else 1.0


def answer_block(text: str) -> str | None:
    """Return the inside of the last closed `<answer>…</answer>`, else of one that is left open at the end.

    Either half may be missing: engines cut at the stop string `</answer>`, and prompts may end with `<answer>`.

    Args:
        text: The completion, without its thinking.

    Returns:
        The answer with the white space around it; None without a tag.

    Examples:
        >>> from grpo_sdk.rewards import answer_block
        >>> answer_block("<answer>3</answer> No: <answer>4</answer>"), answer_block("<answer>4"), answer_block("4")
        ('4', '4', None)
    """
    blocks = tags(text)
    return blocks[-1].contents[0] if blocks else None
