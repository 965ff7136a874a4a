"""An explanation adds up to the value that the task gave, for every composer, and says why each part is what it is."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scoring_tasks import load, prompt, validate

from grpo_sdk import BoundTask, Task, load_task, reward
from grpo_sdk.rewards import graduated, ladder, weighted_sum
from grpo_sdk.task.explanation import Explanation, explain
from grpo_sdk.task.score import Score


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


COMPOSERS = {
    "weighted": weighted_sum(invalid=-0.3),
    "graduated": graduated(),
    "linear": graduated(shaping="linear"),
    "ladder": ladder(invalid=-0.5, levels=(0.1, 0.4, 1.0)),
    "own": lambda specs, parts, valid: 7.0 if valid else -7.0,
}


def task(compose: Any = COMPOSERS["weighted"]) -> BoundTask:
    rewards = (small, even, long, length)
    return load_task(Task("t", load, prompt, validate, rewards, compose=compose))


def explained(text: str, compose: Any = COMPOSERS["weighted"]) -> Explanation:
    bound = task(compose)
    return explain(bound, bound.score(text, bound.rows()[0]))


@pytest.mark.parametrize("compose", COMPOSERS.values(), ids=COMPOSERS)
@given(text=st.sampled_from(["4", "3", "12", "1234", "x", "long text", ""]))
def test_base_and_contributions_are_the_value(compose: Any, text: str) -> None:
    explanation = explained(text, compose)
    assert explanation.base is not None
    total = explanation.base + math.fsum(part.contribution or 0.0 for part in explanation.parts)
    assert total == pytest.approx(explanation.score.value)


@pytest.mark.parametrize(("text", "name", "kind", "why"), [
    ("4", "even", "criterion", "at its maximum"),
    ("4", "long", "penalty", "nothing to take away"),
    ("4", "length", "watched", "watched: weight 0, in no value and never trained on"),
    ("12", "even", "criterion", "needs small, which is 0 of 1"),
    ("12", "small", "criterion", "below its maximum"),
    ("word", "small", "criterion", "there is no valid answer"),
    ("12345", "long", "penalty", ""),
])  # fmt: skip
def test_each_part_says_what_it_is_and_why(text: str, name: str, kind: str, why: str) -> None:
    (part,) = (part for part in explained(text).parts if part.name == name)
    assert (part.kind, part.why) == (kind, why)


def test_a_ladder_pays_the_rungs_climbed() -> None:
    explanation = explained("3", COMPOSERS["ladder"])  # small, not even
    amounts = {part.name: part.contribution for part in explanation.parts}
    assert (explanation.base, amounts["even"]) == (0.1, 0.0)
    assert amounts["small"] == pytest.approx(0.3)
    assert "1 of 2 rungs" in explanation.rule


def test_what_was_not_scored_has_no_amounts() -> None:
    explanation = explain(task(), Score(None, why="crashed", fault="reward"))
    assert explanation.base is None
    assert {part.raw for part in explanation.parts} == {None}
