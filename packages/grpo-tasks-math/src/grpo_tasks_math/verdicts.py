"""Verdicts of the verifier on completions, cached for all rewards that need them."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Literal, Unpack

from pydantic import Field, model_validator

from grpo_sdk import Task, reward
from grpo_sdk.data import DatasetConfig
from grpo_sdk.rewards import length_penalty
from grpo_tasks_math.verify import Decimals, Options, Reading, Verdict, judge


class AnswerConfig(DatasetConfig):
    """Options of a task whose answers are checked by the verifier.

    Attributes:
        decimals: `point`: `1,5` is two numbers; `comma`: it is 1.5.
        rel_tol: Largest difference between two numbers, relative to the gold; 0: an approximation is another number.
        reading: `marked`: the answer in the mark that the prompt asks for; `free`: wherever the completion states one.
        length_penalty: Reward that a completion of `max_chars` or more loses; 0: length costs nothing.
        free_chars: Characters that cost nothing; from there the penalty grows linearly.
        max_chars: Characters from which the whole penalty is taken.
    """

    decimals: Decimals = "point"
    rel_tol: float = Field(default=0.0, ge=0.0, lt=1.0)
    reading: Literal["marked", "free"] = "marked"
    length_penalty: float = Field(default=0.0, ge=0.0, allow_inf_nan=False)
    free_chars: int = Field(default=50, ge=0)
    max_chars: int = Field(default=200, ge=1)

    @model_validator(mode="after")
    def _penalty_grows(self) -> AnswerConfig:
        if self.free_chars >= self.max_chars:
            raise ValueError(f"free_chars {self.free_chars} must be below max_chars {self.max_chars}")
        return self


@reward(1.0, maximum=0.0)
def length(text: str, config: AnswerConfig) -> float:
    """What the completion's length costs, 0 or less."""
    return length_penalty(text, free_chars=config.free_chars, max_chars=config.max_chars, most=config.length_penalty)


def specialize(config: AnswerConfig, task: Task) -> Task:
    """The task under its options: with the reward `length` where length costs something."""
    if not config.length_penalty:
        return replace(task, specialize=None)
    exempt = {**task.exempt, "gold": "a long gold loses the length penalty of the options"}
    return replace(task, rewards=(*task.rewards, length), exempt=exempt, specialize=None)


def solved(answer: Verdict) -> bool:
    """Whether the answer is right, in any form."""
    return answer is Verdict.CORRECT


def verdict_of(gold: str, completion: str, config: AnswerConfig, mark: Reading) -> tuple[Verdict, str]:
    """Return the verdict on a completion, and why an answer is none.

    Args:
        gold: The gold answer.
        completion: Any text.
        config: Options of the task.
        mark: The mark that the prompt asks for, which `reading=marked` reads.

    Raises:
        TimeoutError: the symbolic check ran out of time or memory, which fails the completion (`on_timeout`). Timeouts
            are not cached.
    """
    return _verdict_of(gold, completion, **options_of(config, mark))


def options_of(config: AnswerConfig, mark: Reading) -> Options:
    """The verifier's options for a task whose prompt asks for a mark."""
    reading = mark if config.reading == "marked" else "free"
    return {"decimals": config.decimals, "rel_tol": config.rel_tol, "reading": reading}


@lru_cache(maxsize=64)  # validator, rewards and `solved` need the same verdict in succession
def _verdict_of(gold: str, completion: str, **options: Unpack[Options]) -> tuple[Verdict, str]:
    verdict, why = judge(gold, completion, **options)
    if verdict is Verdict.TIMEOUT:
        raise TimeoutError("the symbolic check of the answer ran out of time or memory")
    return verdict, why
