"""Rewards relative to the group: functions of all answers to one prompt, and two of them to use."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any, TypeVar

from grpo_sdk.errors import UserError
from grpo_sdk.task.calling import check_mark, known_arguments, name_of
from grpo_sdk.task.composition import RewardSpec

GroupFunction = TypeVar("GroupFunction", bound=Callable[..., Sequence[float | None]])

GROUP_ARGUMENTS = ("answers", "texts", "row", "config")
"""Names of the arguments that a group reward may take."""

COMPARED_CHARS = 2000
"""Characters of a completion that `diversity` compares: edit distance takes time by the product of two lengths."""

_MARK = "_grpo_group_reward"


def group_reward(weight: float = 1.0, *, maximum: float = 1.0) -> Callable[[GroupFunction], GroupFunction]:
    """Mark a function of all answers to a prompt as a reward: a ranking, diversity.

    It takes by name `answers` (what the validator made of each completion), `texts`, `row` and `config`, and returns a
    number for each answer, in order; None for one that it cannot score, which then abstains. Completions that the
    validator refuses have no part in it, and a lone valid one is not compared: both get 0. Where completions are scored
    one at a time (`grpo eval`, `grpo sample`, `score`) the part is absent: it says nothing about `solved`.

    Args:
        weight: Factor of the raw value; 0 records a fact.
        maximum: Largest raw value the function returns.

    Raises:
        UserError: a weight or maximum that is no number within `LARGEST_REWARD`.
    """
    check_mark("group_reward", weight, maximum)

    def mark(function: GroupFunction) -> GroupFunction:
        setattr(function, _MARK, (float(weight), float(maximum)))
        return function

    return mark


def is_group_reward(function: Callable[..., Any]) -> bool:
    """Whether a function is marked with `@group_reward`."""
    return hasattr(function, _MARK)


def group_reward_specs(task: str, functions: Sequence[Callable[..., Any]]) -> tuple[RewardSpec, ...]:
    """Read the marks of a task's group rewards, in order; other rewards are left out.

    Raises:
        UserError: a name that another reward has, or an argument that does not exist.
    """
    specs: list[RewardSpec] = []
    names = [name_of(function) for function in functions]
    for function in filter(is_group_reward, functions):
        name = name_of(function)
        if names.count(name) > 1:
            raise UserError(f"task {task!r} has two rewards named {name!r}; parts are kept by name, so rename one.")
        arguments = known_arguments(f"task {task!r}: group reward {name}()", function, GROUP_ARGUMENTS)
        weight, maximum = getattr(function, _MARK)
        specs.append(RewardSpec(name, function, weight, None, maximum, arguments))
    return tuple(specs)


def diversity(weight: float = 0.1) -> Callable[..., Sequence[float]]:
    """A group reward for valid completions that differ from the others of their prompt.

    The raw part is the mean edit distance to the other texts, each divided by the longer length, in [0, 1]; the first
    2000 characters are compared.

    Args:
        weight: Factor of the raw part.

    Examples:
        >>> from grpo_sdk.rewards import diversity
        >>> diversity()(["aaaa", "aaaa", "bbbb"])
        [0.5, 0.5, 1.0]
    """

    def diversity(texts: Sequence[str]) -> list[float]:
        from rapidfuzz.distance import Levenshtein

        heads = [text[:COMPARED_CHARS] for text in texts]
        totals = [0.0] * len(heads)
        for (i, one), (j, other) in combinations(enumerate(heads), 2):
            distance = Levenshtein.normalized_distance(one, other)
            totals[i] += distance
            totals[j] += distance
        return [total / (len(heads) - 1) for total in totals]

    return group_reward(weight)(diversity)


def pairwise_ranking(prefers: Callable[[Any, Any, Any], bool], weight: float = 1.0) -> Callable[..., Sequence[float]]:
    """A group reward that ranks valid answers by comparing each with each.

    The raw part is the share of the others that an answer is preferred to, a tie counting one half, in [0, 1].

    Args:
        prefers: `(answer, other, row)` -> whether the answer is better; where both or neither order holds, it is a tie.
        weight: Factor of the raw part.

    Examples:
        >>> from grpo_sdk.rewards import pairwise_ranking
        >>> shorter = pairwise_ranking(lambda answer, other, row: len(answer) < len(other))
        >>> shorter(["aa", "a", "bb"], None)
        [0.25, 1.0, 0.25]

    Raises:
        UserError: `prefers` is no function of three arguments.
    """
    try:
        inspect.signature(prefers).bind(None, None, None)
    except (TypeError, ValueError):
        raise UserError("pairwise_ranking(prefers): prefers is a function (answer, other, row) -> bool.") from None

    def pairwise_ranking(answers: Sequence[Any], row: Any) -> list[float]:
        wins = [0.0] * len(answers)
        for (i, one), (j, other) in combinations(enumerate(answers), 2):
            first, second = bool(prefers(one, other, row)), bool(prefers(other, one, row))
            won = 0.5 if first == second else float(first)
            wins[i] += won
            wins[j] += 1 - won
        return [won / (len(answers) - 1) for won in wins]

    return group_reward(weight)(pairwise_ranking)
