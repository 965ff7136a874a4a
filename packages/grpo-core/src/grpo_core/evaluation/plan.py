"""When and how each task is evaluated: what the user says, else what the task says, else ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from grpo_core.callbacks import EvalPhase, ResolvedDefault
from grpo_core.config import RunConfig
from grpo_core.config.layers import shown
from grpo_core.evaluation.settings import EvaluationSettings
from grpo_core.task.bound import BoundTask

SETTING_OF: Mapping[str, str] = {
    "size": "size",
    "split": "split",
    "num_completions": "n",
    "temperature": "temperature",
    "top_p": "top_p",
    "max_completion_length": "max_completion_length",
    "at_start": "at_start",
    "interval_steps": "interval_steps",
    "at_end": "at_end",
}
"""Field of `EvaluationDefaults` -> the setting of `eval.*` that stands above it."""

SEVERAL_TEMPERATURE = 0.7
"""Of several completions a row, when nobody says: greedy ones would all be equal."""

_SETTINGS = frozenset(field.name for field in fields(EvaluationSettings))


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationPlan:
    """How one task is evaluated beside training, and when.

    Attributes:
        settings: How.
        at_start: Before the first step.
        interval_steps: Every so many steps; None never.
        at_end: After the last.
    """

    settings: EvaluationSettings
    at_start: bool = True
    interval_steps: int | None = None
    at_end: bool = True

    def is_due(self, phase: EvalPhase, step: int) -> bool:
        """Whether the task is evaluated now."""
        match phase:
            case "initial":
                return self.at_start
            case "interval":
                return self.interval_steps is not None and step > 0 and step % self.interval_steps == 0
            case "final":
                return self.at_end

    @property
    def has_any(self) -> bool:
        """Whether it ever is."""
        return self.at_start or self.at_end or self.interval_steps is not None


def plan_of(config: RunConfig, task: BoundTask) -> tuple[EvaluationPlan, list[ResolvedDefault]]:
    """The plan of one task in a run.

    Returns:
        (plan, what of it is the task's own wish).

    Raises:
        UserError: the task cannot say, or several completions a row are to be greedy.
    """
    held, defaults = config.eval, task.evaluation
    ours = {name: getattr(held, name) for name in type(held).model_fields}
    # Null leaves this one to the trainer, whoever says it.
    ours["max_completion_length"] = held.max_completion_length or config.trainer.max_completion_length
    said = held.model_fields_set - ({"max_completion_length"} if held.max_completion_length is None else set())
    values, own = settled({name: ours[name] for name in said}, task, {**ours, "seed": config.seed})
    plan = EvaluationPlan(
        settings=EvaluationSettings(**{name: value for name, value in values.items() if name in _SETTINGS}),
        at_start=values["at_start"] and defaults.enabled,
        interval_steps=values["interval_steps"] if defaults.enabled else None,
        at_end=values["at_end"] and defaults.enabled,
    )
    if not defaults.enabled:
        return plan, [ResolvedDefault("evaluation", f"{task.name}: none", "the task says so: enabled=False")]
    return plan, wish(task, own)


def settings_of(
    task: BoundTask, given: Mapping[str, Any], ours: EvaluationSettings
) -> tuple[EvaluationSettings, list[ResolvedDefault]]:
    """How one task is evaluated outside a training.

    Args:
        task: The task.
        given: What the user says, by the names of `EvaluationSettings`.
        ours: What holds where neither says.

    Returns:
        (settings, what of them is the task's own wish).
    """
    values, own = settled(given, task, {name: getattr(ours, name) for name in _SETTINGS})
    if values["n"] > 1 and "temperature" not in given and task.evaluation.temperature is None:
        values["temperature"] = SEVERAL_TEMPERATURE
    return EvaluationSettings(**values), wish(task, own)


def settled(
    given: Mapping[str, Any], task: BoundTask, ours: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Each of our settings from the first who says it: the user, the task, we.

    Returns:
        (every setting, those that are other than ours because the task wishes it).
    """
    asked = {setting: getattr(task.evaluation, name) for name, setting in SETTING_OF.items() if setting in ours}
    own = {name: value for name, value in asked.items() if value is not None and name not in given}
    return {**ours, **own, **given}, {name: value for name, value in own.items() if value != ours[name]}


def wish(task: BoundTask, own: Mapping[str, Any]) -> list[ResolvedDefault]:
    """What a task changes by its wishes, as a choice to be shown."""
    if not own:
        return []
    listed = ", ".join(f"{name}={shown(value)}" for name, value in own.items())
    settings = ", ".join(f"eval.{name}" for name in own)
    return [ResolvedDefault("evaluation", f"{task.name}: {listed}", f"the task's own wish, below {settings}")]


def open_settings(config: RunConfig, tasks: Mapping[str, BoundTask]) -> frozenset[str]:
    """The settings of `eval.*` that nobody gave and a task has a wish for; a run's config.yaml leaves them open."""
    wished = {
        setting
        for task in tasks.values()
        for name, setting in SETTING_OF.items()
        if getattr(task.evaluation, name) is not None
    }
    return frozenset(f"eval.{name}" for name in wished - config.eval.model_fields_set)
