"""Asking the verifier about a completion, once for all the rewards that want to know."""

from __future__ import annotations

from functools import lru_cache

from grpo_tasks_math.verify import Verdict, verify


@lru_cache(maxsize=64)  # validator, rewards and `solved` ask about one completion after the other
def verdict_of(gold: str, completion: str) -> Verdict:
    """The verdict on a completion.

    Raises:
        TimeoutError: the symbolic check ran out of time or memory, which fails the completion (`on_timeout`). It is not
            remembered.
    """
    verdict = verify(gold, completion)
    if verdict is Verdict.TIMEOUT:
        raise TimeoutError("the symbolic check of the answer ran out of time or memory")
    return verdict
