"""When and how each task is evaluated: settings of the user, else of the task, else our defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from grpo_core.config import RunConfig
from grpo_core.evaluation.settings import EvaluationSettings
from grpo_sdk.callbacks import EvalPhase, ResolvedDefault
from grpo_sdk.display.text import format_value
from grpo_sdk.errors import UserError
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.game import RANDOM, SELF, GameConfig

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
"""Default temperature of several completions a row: greedy ones would all be equal."""

_SETTINGS = frozenset(field.name for field in fields(EvaluationSettings))


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationPlan:
    """How one task is evaluated beside training, and when.

    Attributes:
        settings: Settings of every evaluation.
        at_start: Whether it is evaluated before the first step.
        interval_steps: Steps between two evaluations; None is never.
        at_end: Whether it is evaluated after the last step.
    """

    settings: EvaluationSettings
    at_start: bool = True
    interval_steps: int | None = None
    at_end: bool = True

    def is_due(self, phase: EvalPhase, step: int) -> bool:
        """Whether the task is evaluated in a phase after `step` steps."""
        match phase:
            case "initial":
                return self.at_start
            case "interval":
                return self.interval_steps is not None and step > 0 and step % self.interval_steps == 0
            case "final":
                return self.at_end

    @property
    def has_any(self) -> bool:
        """Whether the task is ever evaluated."""
        return self.at_start or self.at_end or self.interval_steps is not None


def plan_of(config: RunConfig, task: BoundTask) -> tuple[EvaluationPlan, list[ResolvedDefault]]:
    """The plan of one task in a run.

    Returns:
        (plan, the task's own settings as choices to be shown).

    Raises:
        UserError: the task cannot say, or several completions a row are to be greedy.
    """
    section, enabled = config.eval, task.evaluation.enabled
    settings = {name: getattr(section, name) for name in type(section).model_fields}
    # Null leaves this one to the trainer, whoever says it.
    settings["max_completion_length"] = section.max_completion_length or config.trainer.max_completion_length
    given = section.model_fields_set - ({"max_completion_length"} if section.max_completion_length is None else set())
    values, own = settled({name: settings[name] for name in given}, task, {**settings, "seed": config.seed})
    plan = EvaluationPlan(
        settings=EvaluationSettings(**{name: value for name, value in values.items() if name in _SETTINGS}),
        at_start=values["at_start"] and enabled,
        interval_steps=values["interval_steps"] if enabled else None,
        at_end=values["at_end"] and enabled,
    )
    if not enabled:
        return plan, [ResolvedDefault("evaluation", f"{task.label}: none", "the task says so: enabled=False")]
    return plan, wish(task, own)


def settings_of(
    task: BoundTask, given: Mapping[str, Any], defaults: EvaluationSettings
) -> tuple[EvaluationSettings, list[ResolvedDefault]]:
    """How one task is evaluated outside a training.

    Args:
        task: The task.
        given: Settings of the user, by the names of `EvaluationSettings`.
        defaults: Settings where neither the user nor the task gives one.

    Returns:
        (settings, the task's own ones as choices to be shown).
    """
    values, own = settled(given, task, {name: getattr(defaults, name) for name in _SETTINGS})
    if values["n"] > 1 and "temperature" not in given and task.evaluation.temperature is None:
        values["temperature"] = SEVERAL_TEMPERATURE
    return EvaluationSettings(**values), wish(task, own)


def settled(
    given: Mapping[str, Any], task: BoundTask, defaults: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Resolve each setting: the user's, else the task's, else the default.

    Returns:
        (every setting, those of the task that differ from the default).
    """
    wished = {setting: getattr(task.evaluation, name) for name, setting in SETTING_OF.items() if setting in defaults}
    own = {name: value for name, value in wished.items() if value is not None and name not in given}
    return {**defaults, **own, **given}, {name: value for name, value in own.items() if value != defaults[name]}


def wish(task: BoundTask, own: Mapping[str, Any]) -> list[ResolvedDefault]:
    """The settings that a task changes, as a choice to be shown."""
    if not own:
        return []
    listed = ", ".join(f"{name}={format_value(value)}" for name, value in own.items())
    settings = ", ".join(f"eval.{name}" for name in own)
    return [ResolvedDefault("evaluation", f"{task.label}: {listed}", f"the task's own wish, below {settings}")]


def open_settings(config: RunConfig, tasks: Mapping[str, BoundTask]) -> frozenset[str]:
    """Settings of `eval.*` that the user leaves to a task; a run's config.yaml does not hold them."""
    wished = {
        setting
        for task in tasks.values()
        for name, setting in SETTING_OF.items()
        if getattr(task.evaluation, name) is not None
    }
    return frozenset(f"eval.{name}" for name in wished - config.eval.model_fields_set)


def matchups(tasks: Mapping[str, BoundTask]) -> dict[str, BoundTask]:
    """Tasks as they are evaluated: a game that the policy plays alone becomes a task for each opponent without a model.

    How often a policy beats itself says nothing. The game's own label is its play against random moves.

    Args:
        tasks: Tasks by label.

    Returns:
        Label -> task.

    Raises:
        UserError: the options of a game do not go with an opponent of its evaluations.
    """
    evaluated: dict[str, BoundTask] = {}
    for label, task in tasks.items():
        config, game = task.config, task.task.game
        if game is None or not isinstance(config, GameConfig) or config.opponent != SELF:
            evaluated[label] = task
            continue
        for player in game.rivals:
            try:
                met = task.with_options(opponent=player)
            except UserError as error:
                raise UserError(
                    f"self-play is evaluated against {player}, too: {error} Or train against one player, as "
                    "?opponent=random."
                ) from None
            evaluated[label if player == RANDOM else met.spec] = met
    return evaluated
