"""An explanation adds up to the value that the task gave, for every composer, and says why each part is what it is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_core import Invalid, Row, Task, TaskConfig, load_task, reward
from grpo_core.rewards import graduated, ladder, weighted_sum
from grpo_core.task.bound import BoundTask
from grpo_core.task.composition import RewardSpec
from grpo_core.task.explanation import Explanation, explain
from grpo_core.task.score import Score


def load(config: TaskConfig) -> Iterable[Row]:
    yield Row(id="r", gold="4")


def validate(text: str, row: Row) -> int:
    if not text.isdecimal():
        raise Invalid("no number")
    return int(text)


@reward(0.5)
def small(answer: int) -> float:
    return float(answer < 10)


@reward(1.0, needs="small", maximum=2.0)
def even(answer: int) -> float:
    return 2.0 * float(answer % 2 == 0)


@reward(-0.25)
def long(text: str) -> float:
    return float(len(text) > 3)


@reward(0.0)
def length(text: str) -> float:
    return float(len(text))


def by_hand(specs: Sequence[RewardSpec], parts: Mapping[str, float], valid: bool) -> float:
    return 7.0 if valid else -7.0


def task(compose: Any) -> BoundTask:
    rewards = (small, even, long, length)
    return load_task(Task("t", load, lambda row: "?", validate, rewards, compose=compose))


COMPOSERS = {
    "weighted": weighted_sum(invalid=-0.3),
    "graduated": graduated(),
    "linear": graduated(shaping="linear"),
    "ladder": ladder(invalid=-0.5, levels=(0.1, 0.4, 1.0)),
    "own": by_hand,
}


def explained(compose: Any, text: str) -> Explanation:
    bound = task(compose)
    return explain(bound, bound.score(text, bound.rows()[0]))


@pytest.mark.parametrize("compose", COMPOSERS.values(), ids=COMPOSERS)
@given(text=st.sampled_from(["4", "3", "12", "1234", "x", "long text", ""]))
def test_base_and_contributions_are_the_value(compose: Any, text: str) -> None:
    explanation = explained(compose, text)
    assert explanation.base is not None
    total = explanation.base + math.fsum(part.contribution or 0.0 for part in explanation.parts)
    assert total == pytest.approx(explanation.score.value)


def whys(text: str, compose: Any = COMPOSERS["weighted"]) -> dict[str, str]:
    return {part.name: part.why for part in explained(compose, text).parts}


def test_each_part_says_why() -> None:
    assert whys("4") == {
        "small": "at its maximum",
        "even": "at its maximum",
        "long": "nothing to take away",
        "length": "watched: weight 0, in no value and never trained on",
    }
    assert whys("12")["even"] == "needs small, which is 0 of 1"
    assert whys("12")["small"] == "below its maximum"
    assert whys("word")["small"] == "there is no valid answer"
    assert whys("12345")["long"] == ""


def test_kinds_follow_the_weights() -> None:
    kinds = {part.name: part.kind for part in explained(weighted_sum(), "4").parts}
    assert kinds == {"small": "criterion", "even": "criterion", "long": "penalty", "length": "watched"}


def test_a_ladder_pays_the_rungs_climbed() -> None:
    explanation = explained(COMPOSERS["ladder"], "3")  # small, not even
    amounts = {part.name: part.contribution for part in explanation.parts}
    assert (explanation.base, amounts["even"]) == (0.1, 0.0)
    assert amounts["small"] == pytest.approx(0.3)
    assert "1 of 2 rungs" in explanation.rule


def test_what_was_not_scored_has_no_amounts() -> None:
    explanation = explain(task(weighted_sum()), Score(None, why="crashed", fault="reward"))
    assert explanation.base is None
    assert {part.raw for part in explanation.parts} == {None}
