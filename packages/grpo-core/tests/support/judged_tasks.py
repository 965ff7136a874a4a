"""Tasks with judges; each is made for the address of a local server."""

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from grpo_sdk import Invalid, Row, Task, group_reward, reward
from grpo_sdk.judges import Endpoint, pairwise, rubric

KEY_VARIABLE = "GRPO_TEST_JUDGE_KEY"


class Question(Row):
    """A question."""

    text: str = "How are you?"


def load() -> Iterable[Question]:
    for number in range(8):
        yield Question(id=f"q{number}", gold="well")


def prompt(row: Question) -> str:
    return row.text


def validate(text: str) -> str:
    if not text.strip():
        raise Invalid("nothing is said")
    return text.strip()


@reward(1.0)
def short(answer: str) -> float:
    return float(len(answer) <= 10)


@reward(0)
def key_is_seen(text: str) -> float:
    """Whether this process, or the one that keeps it, has the key in its environment."""
    environments = [Path("/proc", str(pid), "environ").read_bytes() for pid in (os.getpid(), os.getppid())]
    return float(KEY_VARIABLE in os.environ or any(KEY_VARIABLE.encode() in each for each in environments))


@reward(0.0)
def slow(text: str) -> float:
    time.sleep(60 if text == "hang" else 0)
    return 0.0


@group_reward(0.0)
def count(answers: list[str]) -> list[float]:
    return [float(len(answers))] * len(answers)


def endpoint(url: str, **options: Any) -> Endpoint:
    usual = {"model": "judge", "api_key_env": KEY_VARIABLE, "timeout_s": 5.0, "max_retries": 1}
    return Endpoint(url, **usual | options)


def polite(url: str, *, model: dict[str, Any] | None = None, **options: Any) -> Task:
    judge = rubric(
        "It is polite.", model=endpoint(url, **(model or {})), **{"name": "polite", "weight": 0.5, **options}
    )
    return Task("polite", load, prompt, validate, (short, key_is_seen, slow, judge), timeout_s=1.0)


def best(url: str, **options: Any) -> Task:
    judge = pairwise("It is kinder.", model=endpoint(url), **{"name": "kinder", **options})
    return Task("best", load, prompt, validate, (short, judge, count))
