import re
from typing import Any

import pytest

from grpo_core.prompts.filter import OverlongPolicy, filter_rows, truncate_prompt
from grpo_sdk.errors import DataError
from grpo_sdk.task.row import Row


def row(prompt_tokens: int, gold_tokens: int | None = None) -> Row:
    return Row(id=f"{prompt_tokens}/{gold_tokens}", gold=None if gold_tokens is None else "g" * gold_tokens)


def prompt_length(row: Row) -> int:
    return int(row.id.split("/")[0])


def gold_length(row: Row) -> int:
    assert row.gold is not None
    return len(row.gold)


def ids(rows: tuple[Row, ...]) -> list[str]:
    return [row.id for row in rows]


def test_a_prompt_longer_than_the_limit_is_dropped_or_cut() -> None:
    rows = [row(4), row(5), row(6), row(9)]
    report = filter_rows(rows, prompt_length, max_prompt_length=5)
    assert ids(report.kept) == ["4/None", "5/None"] and report.dropped_prompts == ("6/None", "9/None")
    assert str(report) == "2 of 4 rows; 2 dropped for a long prompt (longest: 9 tokens)"
    report = filter_rows(rows, prompt_length, max_prompt_length=5, policy="truncate")
    assert ids(report.kept) == ids(tuple(rows)) and report.truncated == {"6/None", "9/None"}
    assert str(report) == "4 of 4 rows; 2 with the prompt cut to its end (longest: 9 tokens)"


@pytest.mark.parametrize("policy", ["drop", "truncate"])
def test_a_gold_that_cannot_be_reached_drops_its_row_under_both_policies(policy: OverlongPolicy) -> None:
    rows = [row(4, 3), row(4, 4), row(4), row(9, 4)]
    golds: dict[str, Any] = {"gold_length": gold_length, "max_gold_length": 3}
    report = filter_rows(rows, prompt_length, max_prompt_length=5, policy=policy, **golds)
    assert ids(report.kept) == ["4/3", "4/None"]  # without a gold, there is nothing to reach
    assert (report.dropped, report.truncated) == (2, frozenset())  # the last row is too long twice and counted once
    assert report.longest_gold == 4


def test_nothing_left_is_refused_with_the_arithmetic() -> None:
    rows = [row(6), row(9, 8), row(3, 8)]
    golds: dict[str, Any] = {"gold_length": gold_length, "max_gold_length": 7}
    prompts = "2 for a prompt of more than 5 tokens (shortest 6, longest 9)"
    with pytest.raises(DataError, match=rf"none of 3 rows.*{re.escape(prompts)}.*1 for a gold of more than 7 tokens"):
        filter_rows(rows, prompt_length, max_prompt_length=5, **golds)
    with pytest.raises(DataError, match="there are no rows"):
        filter_rows([], prompt_length, max_prompt_length=5)


def test_truncation_keeps_the_end() -> None:
    assert [truncate_prompt((1, 2, 3, 4), longest) for longest in (3, 5, 0)] == [(2, 3, 4), (1, 2, 3, 4), ()]
