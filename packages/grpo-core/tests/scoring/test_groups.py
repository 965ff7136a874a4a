from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import group_tasks
import pytest

from grpo_core import Score, Scorer, Task, UserError, group_reward, load_task, reward
from grpo_core.scoring.groups import Group, group_scores

WORDS = load_task(f"{Path(group_tasks.__file__)}:words")
ROW = WORDS.rows()[0]


@pytest.fixture(scope="module")
def scorer() -> Iterator[Scorer]:
    with Scorer(WORDS, workers=2) as scorer:
        yield scorer


def scored(scorer: Scorer, *groups: list[str]) -> list[list[Score]]:
    rows = [ROW] * max(map(len, groups))
    batch: list[Group] = [(texts, ROW, scorer.score(texts, rows[: len(texts)])) for texts in groups]
    return group_scores(scorer, batch)


def test_a_group_reward_is_added_to_what_each_completion_earns_by_itself(scorer: Scorer) -> None:
    [scores] = scored(scorer, ["a", "bb", "aaa", "1"])

    assert [score.value for score in scores] == [0.75, 0.0, 0.5, -1.0]
    assert [score.parts["shortest"] for score in scores] == [1.0, 0.0, 0.0, 0.0], "a refused one has no part in it"
    assert [score.parts["watched"] for score in scores] == [100.0, 100.0, 100.0, 0.0], "of weight 0: recorded only"
    assert [score.solved for score in scores] == [True, False, True, False], "solved is absolute"


def test_a_lone_valid_completion_is_compared_with_nothing(scorer: Scorer) -> None:
    assert [[score.value for score in scores] for scores in scored(scorer, ["a", "1"], ["a"], ["2", "1"])] == [
        [0.5, -1.0],
        [0.5],
        [-1.0, -1.0],
    ]


def test_one_completion_abstains_where_its_part_is_none(scorer: Scorer) -> None:
    [scores] = scored(scorer, ["skip", "a", "bb"])

    assert [score.value for score in scores] == [None, 0.75, 0.0]
    assert scores[0].fault == "reward" and "shortest() gave None" in scores[0].why


@pytest.mark.parametrize(
    ("text", "fault", "why"),
    [
        ("hang", "timeout", "task group_tasks.words: no answer within 1 s"),
        ("die", "reward", "its worker exited with status 3, twice"),
        ("crash", "reward", "group reward shortest() raised ValueError (group_tasks.py:"),
        ("few", "reward", "group reward shortest() returned a list of 1; a group reward is a list of 2 numbers"),
        ("much", "reward", "2.0, above its maximum 1.0; state it: @group_reward(…, maximum=2)"),
    ],
)
def test_a_failing_group_abstains_and_costs_no_other(scorer: Scorer, text: str, fault: str, why: str) -> None:
    failed, other = scored(scorer, [text, "a", "1"], ["a", "bb"])[:2]

    assert [score.value for score in failed] == [None, None, -1.0]
    assert {score.fault for score in failed[:2]} == {fault} and why in failed[0].why
    assert [score.value for score in other] == [0.75, 0.0]


def test_the_time_of_a_group_reward_is_shared_by_the_completions_it_compared(scorer: Scorer) -> None:
    [scores] = scored(scorer, ["slow", "a", "skip", "1"])

    assert [score.seconds.get("shortest", 0.0) >= 0.2 / 3 for score in scores] == [True, True, True, False]
    assert all(0 <= score.seconds["watched"] < 0.2 / 3 for score in scores[:3])
    assert all({"validate", "has_a"} <= score.seconds.keys() for score in scores[:3]), "those of each are kept"
    [failed] = scored(scorer, ["crash", "a"])
    assert all(score.seconds.keys() == {"validate", "has_a"} for score in failed)


def test_a_completion_that_abstained_by_itself_has_no_part_in_it(scorer: Scorer) -> None:
    [scores] = scored(scorer, ["ownfault", "a", "bb"])

    assert [score.value for score in scores] == [None, 0.75, 0.0] and "ZeroDivisionError" in scores[0].why


def test_the_shipped_group_rewards() -> None:
    with Scorer(group_tasks.varied, workers=1) as scorer:
        texts = ["aaaa", "aaaa", "bbbb"]
        scores = scorer.score(texts, [ROW] * 3)
        [completed] = group_scores(scorer, [(texts, ROW, scores)])

    assert [score.parts["diversity"] for score in completed] == [0.5, 0.5, 1.0]
    assert [score.parts["pairwise_ranking"] for score in completed] == [0.75, 0.75, 0.0]
    assert [score.value for score in completed] == pytest.approx([0.5 + 0.1 + 0.225, 0.5 + 0.1 + 0.225, 0.2])


def test_the_identity_of_a_task_names_its_group_rewards() -> None:
    [with_group, other, plain] = [
        load_task(replace(group_tasks.words, rewards=rewards)).identity
        for rewards in (
            (group_tasks.has_a, group_tasks.shortest),
            (group_tasks.has_a, group_tasks.watched),
            (group_tasks.has_a,),
        )
    ]
    assert len({with_group, other, plain}) == 3


def task(*rewards: object) -> Task:
    return Task("some", group_tasks.load, group_tasks.prompt, group_tasks.validate, rewards)  # type: ignore[arg-type]


def test_mistakes_name_the_reward() -> None:
    @group_reward()
    def closest(answer: str) -> list[float]:
        return []

    @reward()
    def shortest() -> float:
        return 1.0

    with pytest.raises(UserError, match=r"closest\(\) takes 'answer'; it may take answers, .* mean 'answers'"):
        task(group_tasks.has_a, closest)
    with pytest.raises(UserError, match="has no rewards"):
        task(group_tasks.shortest)
    with pytest.raises(UserError, match="two rewards named 'shortest'"):
        task(shortest, group_tasks.shortest)
    with pytest.raises(UserError, match=r"task 'some': 'exact' among its rewards must be a function"):
        task("exact")
    with pytest.raises(UserError, match=r"task 'x': prompt='q' must be a function"):
        Task("x", group_tasks.load, "q", group_tasks.validate, (group_tasks.has_a,))  # type: ignore[arg-type]
    with pytest.raises(UserError, match="Write a def with @reward"):
        task(lambda answer: 1.0, lambda text: 0.0)
    with pytest.raises(UserError, match="write @group_reward"):
        group_reward(group_tasks.has_a)  # type: ignore[arg-type]
