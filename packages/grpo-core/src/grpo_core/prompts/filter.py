"""Filtering rows by the length limits, with a report of what was left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from grpo_sdk.errors import DataError
from grpo_sdk.task.row import Row

OverlongPolicy = Literal["drop", "truncate"]


@dataclass(frozen=True, slots=True)
class FilterReport:
    """The rows of a task that fit, and those that do not.

    Attributes:
        kept: Rows to use, in their order.
        dropped_prompts: Ids of rows dropped for the length of their prompt.
        dropped_golds: Ids of rows dropped for the length of their gold.
        truncated: Ids among `kept` whose prompt is longer than the limit and must pass through `truncate_prompt`.
        longest_prompt: Tokens of the longest prompt met.
        longest_gold: Tokens of the longest gold met; 0 where golds are not limited.
    """

    kept: tuple[Row, ...]
    dropped_prompts: tuple[str, ...]
    dropped_golds: tuple[str, ...]
    truncated: frozenset[str]
    longest_prompt: int
    longest_gold: int

    @property
    def dropped(self) -> int:
        """Number of rows left out."""
        return len(self.dropped_prompts) + len(self.dropped_golds)

    def __str__(self) -> str:
        total = len(self.kept) + self.dropped
        parts = [
            f"{len(ids)} {what} (longest: {longest} tokens)"
            for ids, what, longest in (
                (self.dropped_prompts, "dropped for a long prompt", self.longest_prompt),
                (self.dropped_golds, "dropped for a long gold", self.longest_gold),
                (self.truncated, "with the prompt cut to its end", self.longest_prompt),
            )
            if ids
        ]
        return f"{len(self.kept)} of {total} rows" + (f"; {', '.join(parts)}" if parts else "")


def filter_rows(
    rows: Sequence[Row],
    prompt_length: Callable[[Row], int],
    *,
    max_prompt_length: int,
    gold_length: Callable[[Row], int] | None = None,
    max_gold_length: int | None = None,
    policy: OverlongPolicy = "drop",
) -> FilterReport:
    """Sort rows by whether their prompt and gold fit.

    Args:
        rows: The rows of one task.
        prompt_length: Tokens of a row's encoded prompt.
        max_prompt_length: Tokens that a prompt may have.
        gold_length: Tokens of a row's gold; asked only where there is one.
        max_gold_length: Tokens that a gold may have, usually max_completion_length: a longer one cannot be reached.
        policy: What happens to a prompt that is too long. A gold that is too long always drops its row.

    Raises:
        DataError: nothing is left; says how long the shortest and longest are.
    """
    prompts = {row.id: prompt_length(row) for row in rows}
    golds: dict[str, int] = {}
    if gold_length is not None and max_gold_length is not None:
        golds = {row.id: gold_length(row) for row in rows if row.gold is not None}
    overlong = {row_id for row_id, length in prompts.items() if length > max_prompt_length}
    unreachable = {
        row_id for row_id, length in golds.items() if max_gold_length is not None and length > max_gold_length
    }
    dropped_prompts = overlong if policy == "drop" else set()
    kept = tuple(row for row in rows if row.id not in dropped_prompts | unreachable)
    if not kept:
        reasons = [
            f"{len(ids)} for a {what} of more than {limit} tokens (shortest {min(lengths[row_id] for row_id in ids)}, "
            f"longest {max(lengths[row_id] for row_id in ids)})"
            for ids, what, limit, lengths in (
                (dropped_prompts, "prompt", max_prompt_length, prompts),
                (unreachable - dropped_prompts, "gold", max_gold_length, golds),
            )
            if ids
        ]
        why = f"none of {len(rows)} rows is left: {', '.join(reasons)}."
        raise DataError(why if rows else "there are no rows.")
    return FilterReport(
        kept=kept,
        dropped_prompts=tuple(row.id for row in rows if row.id in dropped_prompts),
        dropped_golds=tuple(row.id for row in rows if row.id in unreachable - dropped_prompts),
        truncated=frozenset(row.id for row in kept if row.id in overlong),
        longest_prompt=max(prompts.values()),
        longest_gold=max(golds.values(), default=0),
    )


def truncate_prompt(prompt_ids: tuple[int, ...], max_prompt_length: int) -> tuple[int, ...]:
    """The last `max_prompt_length` tokens: a prompt's end holds the question and the start of the answer."""
    return prompt_ids[max(0, len(prompt_ids) - max_prompt_length) :]
