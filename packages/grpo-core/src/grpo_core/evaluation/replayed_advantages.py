"""Signs of advantages under stored and under new scores, by the run's own baseline where the log has what it needs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from grpo_core.algorithms.advantages.baselines import group_mean
from grpo_core.algorithms.advantages.groups import zero_std_fraction
from grpo_core.config import TrainerConfig
from grpo_core.evaluation.rescoring import Scored
from grpo_sdk.plugins import variants as registry
from grpo_sdk.records.rollouts import RolloutRecord
from grpo_sdk.scoring.parts import PartColumns
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.score import Score

LOGGED = frozenset({"keys", "roles", "state", "lengths", "reward_parts", "part_weights"})
"""Inputs of a baseline that the log of completions holds."""

ZERO = 1e-9
"""Advantages up to this size have no sign: they are equal rewards, up to rounding."""


@dataclass(slots=True)
class Comparison:
    """How the advantages of all completions compare.

    Attributes:
        n: Completions compared.
        differ: Completions whose advantage has another sign, 0 being one.
        reversed: Completions whose advantage is of the opposite sign.
        groups: Groups compared.
        equal_then: Groups of equal stored rewards, which teach nothing.
        equal_now: Groups of equal rewards now.
    """

    n: int = 0
    differ: int = 0
    reversed: int = 0
    groups: int = 0
    equal_then: float = 0.0
    equal_now: float = 0.0

    def add(self, groups: Tensor, rewards: tuple[Tensor, Tensor], signs: tuple[Tensor, Tensor]) -> None:
        """Add a step."""
        then, now = signs
        number = len(groups.unique())
        self.n += len(then)
        self.differ += int((then != now).sum())
        self.reversed += int((then * now < 0).sum())
        self.groups += number
        self.equal_then += number * zero_std_fraction(rewards[0], groups)
        self.equal_now += number * zero_std_fraction(rewards[1], groups)

    def as_json(self) -> dict[str, Any]:
        """The counts, and the share of completions whose advantage has another sign."""
        return {
            "n": self.n,
            "differ": self.differ,
            "share": self.differ / self.n if self.n else None,
            "reversed": self.reversed,
            "groups": self.groups,
            "equal_groups_then": round(self.equal_then),
            "equal_groups_now": round(self.equal_now),
        }


class ReplayedBaseline:
    """A run's baseline, applied to the stored rewards and to new ones.

    Args:
        config: Section `trainer` of the run, resolved.
        tasks: Tasks of today by the run's specs.
        is_whole: Whether all of the run's steps and tasks are replayed: running values depend on them.

    Attributes:
        description: The baseline that is used; why, if it is not the run's.
    """

    def __init__(self, config: TrainerConfig, tasks: Mapping[str, BoundTask], *, is_whole: bool) -> None:
        self._parts = PartColumns(tasks)
        self._states: tuple[dict[str, float], dict[str, float]] = ({}, {})
        self._provided: frozenset[str] = frozenset()
        self._baseline: Callable[..., Tensor] = group_mean
        name, why = config.baseline, ""
        bound = registry.bind("advantage", name, config.advantage_args, "trainer.advantage_args")
        if bound.facts.per_token:
            why = "works on tokens"
        elif missing := bound.provided - LOGGED:
            why = f"needs {', '.join(sorted(missing))}, which the log does not hold"
        elif "state" in bound.provided and not is_whole:
            why = "has running values, which need all steps and tasks"
        else:
            self._baseline, self._provided = bound, bound.provided
        self.description = f"group_mean, since the run's {name} {why}" if why else name
        if config.beta and config.kl_placement == "reward":
            self.description += ", without the KL penalty of the reward"

    def signs(self, scored: Sequence[Scored]) -> tuple[Tensor, tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Groups, rewards and the advantages' signs of a step, each pair as (then, now).

        A reward now has the length penalty that the run added to the stored value.

        Args:
            scored: Records of the step with their new scores.
        """
        numbers: dict[int, int] = {}
        groups = torch.tensor([numbers.setdefault(record.group, len(numbers)) for record, _ in scored])
        rewards = (
            _tensor([_reward(record, record.score) for record, _ in scored]),
            _tensor([_reward(record, new) for record, new in scored]),
        )
        scores = [record.score for record, _ in scored], [new for _, new in scored]
        then, now = (self._sign(rewards[index], groups, scored, scores[index], self._states[index]) for index in (0, 1))
        return groups, rewards, (then, now)

    def _sign(
        self,
        rewards: Tensor,
        groups: Tensor,
        scored: Sequence[Scored],
        scores: Sequence[Score],
        state: dict[str, float],
    ) -> Tensor:
        if not len(rewards):
            return rewards
        records = [record for record, _ in scored]
        labels = [record.task for record in records]
        inputs: dict[str, Callable[[], Any]] = {
            "keys": lambda: labels,
            "roles": lambda: [f"{record.task}/{record.role}" if record.role else record.task for record in records],
            "state": lambda: state,
            "lengths": lambda: torch.tensor([record.tokens for record in records]),
            "reward_parts": lambda: _tensor(self._parts.values(labels, scores)),
            "part_weights": lambda: _tensor(self._parts.weights(labels)),
        }
        advantages = self._baseline(rewards, groups, **{name: inputs[name]() for name in sorted(self._provided)})
        return advantages.sign().where(advantages.abs() > ZERO, 0.0)


def _reward(record: RolloutRecord, score: Score) -> float:
    if score.value is None:
        return math.nan
    if record.reward is None or record.score.value is None:
        return score.value
    return score.value + record.reward - record.score.value


def _tensor(values: Sequence[Any]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)
