"""Completions that a report shows of a batch."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from grpo_core.rollouts.rollout import PromptGroup, Rollout, Turn
from grpo_core.training.metrics import samples_of
from grpo_sdk import Message, Score, load_task
from grpo_sdk.endpoints.completion import Completion
from grpo_sdk.task.mixture import Draw


@pytest.fixture(scope="module")
def groups() -> list[PromptGroup]:
    task = load_task(f"{Path(__file__).parent / 'programs' / 'golds.py'}:letters")
    return [PromptGroup(Draw(task, task.name, row, index), (1,)) for index, row in enumerate(task.rows()[:2])]


def said(group: PromptGroup, index: int, value: float | None, *texts: str, told: Sequence[Message] = ()) -> Rollout:
    turns = tuple(Turn((1,), Completion((2,), (0.0,), text, "stop", 0)) for text in texts)
    return Rollout(group.draw.task.spec, group.draw.row, index, group.role, turns, Score(value), tuple(told))


def test_the_group_whose_rewards_differ_is_shown_each_text_once(groups: list[PromptGroup]) -> None:
    one, two = groups
    rollouts = [said(one, 0, 0.0, "x"), said(one, 0, 0.0, "y"), said(one, 0, None, "z")]
    rollouts += [said(two, 1, 1.0, "b"), said(two, 1, 0.0, "c"), said(two, 1, 1.0, "b")]
    shown = [(sample.prompt, sample.text, sample.score.value) for sample in samples_of(groups, rollouts, 3)]
    assert shown == [("say b:", "b", 1.0), ("say b:", "c", 0.0)]
    assert [sample.text for sample in samples_of(groups, rollouts, 1)] == ["b"]
    assert [sample.text for sample in samples_of([one], rollouts[:3], 3)] == ["x", "y", "z"]


def test_several_turns_are_shown_by_who_said_what(groups: list[PromptGroup]) -> None:
    told = [("", "| |"), ("first", "a\n"), ("", "|a|"), ("second", "b"), ("", "first +1")]
    messages = [Message(role=role, content=content) for role, content in told]
    (shown,) = samples_of(groups[:1], [said(groups[0], 0, 1.0, "a", told=messages)], 3)
    assert shown.text == "first: a  second: b"
