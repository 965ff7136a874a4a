"""Ranks that evaluate together find what one process finds, whoever has how many rows."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import pytest
from evaluation_runs import evaluation_of
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_core.evaluation.answers import evaluate_together
from grpo_core.evaluation.results import Certainty, Evaluation, TokenStatistics
from grpo_core.policy.ranks import Ranks
from grpo_sdk import Row, Score
from grpo_sdk.endpoints.base import StopRequested


class Waiting(Exception):
    """A rank has said what it has, and waits for the others."""


def together(size: int, rows: Sequence[Row], evaluate: Any) -> list[Any]:
    """What each rank finds: one after the other says what it has, and then gets what all have said."""
    said: list[bytes] = []

    class Rank(Ranks):
        def gather(self, data: bytes) -> list[bytes]:
            if len(said) < size:
                said.append(data)
                raise Waiting
            return said

    def found(rank: int) -> Any:
        try:
            ranks = Rank(rank=rank, size=size)
            return evaluate_together(rows, lambda mine: evaluate(rank, mine), ranks, lambda *expected: nullcontext())
        except StopRequested:
            return "stopped"
        except Waiting:
            return None

    return [[found(rank) for rank in range(size)] for _ in range(2)][1]


def rows_of(count: int) -> list[Row]:
    return [Row(id=str(index)) for index in range(count)]


def of(rows: Sequence[Row], text: str = "") -> Evaluation:
    """Two completions a row, of which every number depends on the row."""
    numbers = [int(row.id) for row in rows]
    sure = [
        Certainty(TokenStatistics(0.1 * at, 0.0, 1.0, 0.3), TokenStatistics(1 / 3, 0.0, 1.0, 0.5)) for at in numbers
    ]
    scores = [
        (Score(1 / (at + 1), {"part": 0.1 * at}, True, at % 2 == 0, text), Score(None, fault="timeout", why=text))
        for at in numbers
    ]
    return evaluation_of(
        [each for pair in scores for each in pair],
        n=2,
        rows=rows,
        texts=[each for at in numbers for each in (f"{at}{text}", text)],
        lengths=[each for at in numbers for each in (at, None)],
        truncated=[False, True] * len(rows),
        certainty=[each for one in sure for each in (one, None)],
        think_lengths=[each for at in numbers for each in (None, at)],
        seconds=float(max(numbers, default=0)),
        peak_memory_mib=1.0,
    )


@settings(max_examples=20, deadline=None)
@given(count=st.integers(0, 7), size=st.integers(1, 3), text=st.text(max_size=3) | st.just("\ud800\x00"))
def test_all_get_the_whole_in_order_to_the_last_bit(count: int, size: int, text: str) -> None:
    rows = rows_of(count)
    for found in together(size, rows, lambda rank, mine: of(mine, text)):
        assert found == of(rows, text)


def test_a_stop_on_one_rank_is_a_stop_on_all() -> None:
    def evaluate(rank: int, mine: Sequence[Row]) -> Evaluation:
        if rank == 1:
            raise StopRequested
        return of(mine)

    assert together(3, rows_of(4), evaluate) == ["stopped"] * 3
    with pytest.raises(StopRequested):
        evaluate_together(rows_of(2), lambda mine: evaluate(1, mine), Ranks(), lambda *expected: nullcontext())
