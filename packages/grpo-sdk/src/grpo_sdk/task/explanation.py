"""Explains a score: what the validator found, what each part is worth, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.composition import RewardSpec, explain_composition
from grpo_sdk.task.score import Score

PartKind = Literal["criterion", "penalty", "watched"]


@dataclass(frozen=True, slots=True)
class PartExplanation:
    """One reward of a task, and what it did for a score.

    Attributes:
        name: Name of the reward.
        kind: `criterion`: can be earned; `penalty`: can only take away; `watched`: weight 0, recorded only.
        weight: Factor of the raw value.
        maximum: Largest raw value.
        needs: Earlier reward that must reach its maximum first.
        raw: Raw value; None where the completion was not scored.
        contribution: Amount that it adds to the value; None where it counts only together with other parts.
        why: Reason of the raw value, in a few words.
    """

    name: str
    kind: PartKind
    weight: float
    maximum: float
    needs: str | None
    raw: float | None
    contribution: float | None
    why: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """A score with its reasons. The value is `base` and the sum of the contributions.

    Attributes:
        score: The score.
        answer: The validator's answer as Python writes it; None where it refused the completion.
        rule: Rule by which the parts make the value; empty where the completion was not scored.
        base: Amount of the value that no single part accounts for; None where the completion was not scored.
        parts: Every reward of the task, in order.
    """

    score: Score
    answer: str | None
    rule: str
    base: float | None
    parts: tuple[PartExplanation, ...]

    def as_json(self) -> dict[str, Any]:
        """The explanation as a dictionary of plain values."""
        return asdict(self)


def explain(task: BoundTask, score: Score, answer: str | None = None) -> Explanation:
    """Explain a score that a task gave; runs none of the task's functions but its composer.

    Args:
        task: The task.
        score: Score of a completion.
        answer: The validator's answer, for display.
    """
    if score.value is None:
        parts = (_part(spec, None, None, "not scored") for spec in task.rewards)
        return Explanation(score, answer, "", None, tuple(parts))
    composition = explain_composition(task.task.compose, task.rewards, score.parts, score.valid)
    by_name = {spec.name: spec for spec in task.rewards}
    explained = (
        _part(
            spec,
            score.parts[spec.name],
            composition.contributions.get(spec.name),
            _why(spec, score, by_name),
        )
        for spec in task.rewards
    )
    return Explanation(score, answer, composition.rule, composition.base, tuple(explained))


def _part(spec: RewardSpec, raw: float | None, contribution: float | None, why: str) -> PartExplanation:
    kind: PartKind = "watched" if spec.is_fact else "penalty" if spec.is_penalty else "criterion"
    return PartExplanation(spec.name, kind, spec.weight, spec.maximum, spec.needs, raw, contribution, why)


def _why(spec: RewardSpec, score: Score, specs: Mapping[str, RewardSpec]) -> str:
    raw = score.parts[spec.name]
    if spec.needs is not None and not specs[spec.needs].reached_by(score.parts[spec.needs]):
        needed = specs[spec.needs]
        return f"needs {needed.name}, which is {score.parts[needed.name]:.4g} of {needed.maximum:g}"
    if not score.valid and ("answer" in spec.arguments or "predictions" in spec.arguments):
        return "there is no valid answer"
    if spec.is_fact:
        return "watched: weight 0, in no value and never trained on"
    if spec.is_penalty:
        return "" if spec.weight * raw else "nothing to take away"
    return "at its maximum" if spec.reached_by(raw) else "below its maximum"
