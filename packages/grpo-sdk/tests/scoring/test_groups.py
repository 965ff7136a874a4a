from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import group_tasks
import pytest

from grpo_sdk import Score, Scorer, Task, UserError, group_reward, load_task, reward
from grpo_sdk.scoring.groups import Group, group_scores

WORDS = load_task(f"{Path(group_tasks.__file__)}:words")
ROW = WORDS.rows()[0]


@pytest.fixture(scope="module")
def scorer() -> Iterator[Scorer]:
    with Scorer(WORDS, workers=2) as scorer:
        yield scorer


def scored(scorer: Scorer, *groups: list[str]) -> list[list[Score]]:
    batch: list[Group] = [(texts, ROW, scorer.score(texts, [ROW] * len(texts))) for texts in groups]
    return group_scores(scorer, batch)


def test_a_group_reward_is_added_to_what_each_completion_earns_by_itself(scorer: Scorer) -> None:
    [scores] = scored(scorer, ["a", "bb", "aaa", "1"])
    assert [score.value for score in scores] == [0.75, 0.0, 0.5, -1.0]
    assert [score.parts["shortest"] for score in scores] == [1.0, 0.0, 0.0, 0.0], "a refused one has no part in it"
    assert [score.parts["watched"] for score in scores] == [100.0, 100.0, 100.0, 0.0], "of weight 0: recorded only"
    assert [score.solved for score in scores] == [True, False, True, False], "solved is absolute"


def test_a_lone_valid_completion_is_compared_with_nothing(scorer: Scorer) -> None:
    groups = scored(scorer, ["a", "1"], ["a"], ["2", "1"])
    assert [[score.value for score in scores] for scores in groups] == [[0.5, -1.0], [0.5], [-1.0, -1.0]]


@pytest.mark.parametrize(("text", "fault", "why"), [
    ("skip", "reward", "shortest() gave None"),
    ("ownfault", "reward", "ZeroDivisionError"),  # of its own: it has no part in the group
])  # fmt: skip
def test_one_completion_abstains_alone(scorer: Scorer, text: str, fault: str, why: str) -> None:
    [scores] = scored(scorer, [text, "a", "bb"])
    assert [score.value for score in scores] == [None, 0.75, 0.0]
    assert scores[0].fault == fault and why in scores[0].why


@pytest.mark.parametrize(("text", "fault", "why"), [
    ("hang", "timeout", "task group_tasks.words: no answer within 1 s"),
    ("die", "reward", "its worker exited with status 3, twice"),
    ("crash", "reward", "group reward shortest() raised ValueError (group_tasks.py:"),
    ("few", "reward", "shortest() returned a list of 1; a group reward is a list of 2 numbers"),
    ("much", "reward", "2.0, above its maximum 1.0; state it: @group_reward(…, maximum=2)"),
])  # fmt: skip
def test_a_failing_group_abstains_and_costs_no_other(scorer: Scorer, text: str, fault: str, why: str) -> None:
    failed, other = scored(scorer, [text, "a", "1"], ["a", "bb"])
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


def test_the_shipped_group_rewards() -> None:
    with Scorer(group_tasks.varied, workers=1) as scorer:
        [completed] = scored(scorer, ["aaaa", "aaaa", "bbbb"])
    assert [score.parts["diversity"] for score in completed] == [0.5, 0.5, 1.0]
    assert [score.parts["pairwise_ranking"] for score in completed] == [0.75, 0.75, 0.0]
    assert [score.value for score in completed] == pytest.approx([0.5 + 0.1 + 0.225, 0.5 + 0.1 + 0.225, 0.2])


def test_the_identity_of_a_task_names_its_group_rewards() -> None:
    rewards = [(group_tasks.has_a, *others) for others in ((group_tasks.shortest,), (group_tasks.watched,), ())]
    assert len({load_task(replace(group_tasks.words, rewards=each)).identity for each in rewards}) == 3


@group_reward()
def closest(answer: str) -> list[float]:
    return []


@reward()
def shortest() -> float:
    return 1.0


def task(*rewards: object, prompt: object = group_tasks.prompt) -> Task:
    return Task("some", group_tasks.load, prompt, group_tasks.validate, rewards)  # type: ignore[arg-type]


@pytest.mark.parametrize(("build", "message"), [
    (lambda: task(group_tasks.has_a, closest), r"closest\(\) takes 'answer'; .*answers, .* mean 'answers'"),
    (lambda: task(shortest, group_tasks.shortest), "two rewards named 'shortest'"),
    (lambda: task("exact"), "'some': 'exact' among its rewards must be a function"),
    (lambda: task(group_tasks.has_a, prompt="q"), "'some': prompt='q' must be a function"),
    (lambda: task(lambda answer: 1.0, lambda text: 0.0), "Write a def with @reward"),
])  # fmt: skip
def test_mistakes_name_the_reward(build: Callable[[], object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        build()
