"""Tasks with group rewards; the completion says how a group reward misbehaves."""

import os
import time
from collections.abc import Iterable, Sequence

from grpo_sdk import Invalid, Row, Task, TaskConfig, group_reward, reward
from grpo_sdk.rewards import diversity, pairwise_ranking, weighted_sum


class Lines(Row):
    """A row without a field of its own."""


def load(config: TaskConfig) -> Iterable[Lines]:
    for number in range(8):
        yield Lines(id=f"{config.split}{number}", gold="a")


def prompt(row: Lines) -> str:
    return f"{row.id}: "


def validate(text: str) -> str:
    if not text.isalpha():
        raise Invalid("no word")
    return text


def anything(text: str) -> str:
    return text


@reward(0.5)
def has_a(answer: str) -> float:
    if answer == "ownfault":
        raise ZeroDivisionError
    return float("a" in answer)


@group_reward(0.25)
def shortest(answers: Sequence[str]) -> Sequence[float | None]:
    if "hang" in answers:
        time.sleep(60)
    if "slow" in answers:
        time.sleep(0.2)
    if "die" in answers:
        os._exit(3)
    if "crash" in answers:
        raise ValueError("boom")
    if "few" in answers:
        return [1.0]
    best = min(map(len, answers))
    return [None if answer == "skip" else 2.0 if answer == "much" else float(len(answer) == best) for answer in answers]


@group_reward(0)
def watched(answers: Sequence[str]) -> Sequence[float]:
    return [100.0 for _ in answers]


words = Task(
    "words", load, prompt, validate, (has_a, shortest, watched), compose=weighted_sum(invalid=-1.0), timeout_s=0.5
)
varied = Task("varied", load, prompt, anything, (has_a, diversity(0.2), pairwise_ranking(lambda a, b, row: a < b, 0.3)))
