"""Bounds on what a completion may earn: with every criterion met, and without a right answer."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.calling import binding_of, remembered
from grpo_sdk.task.composition import REWARD_ARGUMENTS, RewardSpec
from grpo_sdk.task.judging import JudgedReward
from grpo_sdk.task.score import Score

TOLERANCE = 1e-6
"""Difference of two values that is rounding."""

VALIDATOR_ARGUMENTS = ("text", "row", "config", "texts", "calls", "environment", "turns")

LUCK = 0.02
"""Share of what can be earned beyond form that an answer may get by chance: a first letter that is right."""

KNOWLEDGE = ("row", "predictions", "environment")
"""Arguments that tell a function what a right answer is."""


def highest_value(task: BoundTask, score: Score) -> float:
    """The value of a completion that meets every criterion and has no penalty.

    Args:
        task: The task.
        score: Any score of the task that has parts; the facts of a completion, rewards of weight 0, are taken from it.
    """
    best = {spec.name: spec.maximum if spec.is_criterion else min(0.0, spec.maximum) for spec in task.rewards}
    return _composed(task, best, score, valid=True)


def unearned_value(task: BoundTask, score: Score) -> float:
    """The most that a completion without a right answer may earn.

    It is the composer's value for a completion of the same validity in which the rewards that look at form alone are at
    their maximum, and all others pay nothing. An invalid completion is paid only for form that needs no answer.

    Args:
        task: The task.
        score: Score of the completion; gives its validity and its facts.
    """
    paying = {
        spec.name for spec in form_rewards(task) if score.valid or not {"answer", "predictions"} & set(spec.arguments)
    }
    parts = {spec.name: spec.maximum if spec.name in paying else min(0.0, spec.maximum) for spec in task.rewards}
    return _composed(task, parts, score, valid=score.valid)


def form_rewards(task: BoundTask) -> tuple[RewardSpec, ...]:
    """The rewards that look at form alone: they cannot know what a right answer is.

    Such a reward does not read the row, the environment that was made of it, or an opponent's predictions. It may read
    the answer only if the validator does not read those, since an answer may otherwise hold a verdict. A reward that
    needs another kind is not one.
    """
    is_blind = not _reads(task.task.validate, VALIDATOR_ARGUMENTS, KNOWLEDGE, positional=2)
    form: dict[str, RewardSpec] = {}
    for spec in task.rewards:
        is_formal = not _reads(spec.function, REWARD_ARGUMENTS, KNOWLEDGE)
        if "answer" in spec.arguments and not is_blind:
            is_formal = False
        if spec.is_criterion and is_formal and (spec.needs is None or spec.needs in form):
            form[spec.name] = spec
    return tuple(form.values())


def decided_by_judges(task: BoundTask) -> bool:
    """Whether a judge has a say in what is solved; checks take it as satisfied, so a solved completion says nothing."""
    return any(spec.is_criterion and isinstance(spec.function, JudgedReward) for spec in task.rewards)


def _composed(task: BoundTask, parts: Mapping[str, float], score: Score, *, valid: bool) -> float:
    facts = {spec.name: score.parts.get(spec.name, 0.0) for spec in task.rewards if spec.is_fact}
    return float(task.task.compose(task.rewards, {**parts, **facts}, valid))


@remembered
def _reads(function: Callable[..., Any], available: tuple[str, ...], names: Sequence[str], positional: int = 0) -> bool:
    """Whether a function's code uses one of its arguments; one that it only has in its signature does not count."""
    parameters = {parameter for parameter, name in binding_of(function, available, positional).items() if name in names}
    plain = inspect.unwrap(function)
    if not inspect.isfunction(plain) or plain is not function:  # a partial, a decorated one: its own code says nothing
        return bool(parameters)
    for instruction in dis.get_instructions(plain):
        used = instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,)
        if parameters & {name for name in used if isinstance(name, str)}:
            return True
    return False
