"""Verdicts of the verifier on completions, cached for all rewards that need them."""

from __future__ import annotations

from functools import lru_cache

from pydantic import Field

from grpo_core.data import DatasetConfig
from grpo_tasks_math.verify import Decimals, Verdict, verify


class AnswerConfig(DatasetConfig):
    """Options of a task whose answers are checked by the verifier.

    Attributes:
        decimals: `point`: `1,5` is two numbers; `comma`: it is 1.5.
        rel_tol: Largest difference between two numbers, relative to the gold; 0: an approximation is another number.
    """

    decimals: Decimals = "point"
    rel_tol: float = Field(default=0.0, ge=0.0, lt=1.0)


def verdict_of(gold: str, completion: str, config: AnswerConfig) -> Verdict:
    """Return the verdict on a completion.

    Raises:
        TimeoutError: the symbolic check ran out of time or memory, which fails the completion (`on_timeout`). Timeouts
            are not cached.
    """
    return _verdict_of(gold, completion, config.decimals, config.rel_tol)


@lru_cache(maxsize=64)  # validator, rewards and `solved` need the same verdict in succession
def _verdict_of(gold: str, completion: str, decimals: Decimals, rel_tol: float) -> Verdict:
    verdict = verify(gold, completion, decimals=decimals, rel_tol=rel_tol)
    if verdict is Verdict.TIMEOUT:
        raise TimeoutError("the symbolic check of the answer ran out of time or memory")
    return verdict
