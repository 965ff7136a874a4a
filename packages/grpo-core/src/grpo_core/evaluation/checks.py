"""Checks of an evaluation's tasks and rows that need no torch, whose import takes seconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grpo_core.config import RunConfig
from grpo_core.evaluation.plan import settings_of
from grpo_core.evaluation.rows import subset
from grpo_core.evaluation.settings import EvaluationSettings
from grpo_core.profiles.accelerator import check_device
from grpo_sdk.check.overlap import held_out
from grpo_sdk.episodes.opponents import check_opponent
from grpo_sdk.plugins.models import check_model
from grpo_sdk.plugins.tasks import bind
from grpo_sdk.task.spec import parse_task_specs


def check_evaluation(task: str, given: Mapping[str, Any], defaults: EvaluationSettings) -> None:
    """Check that tasks exist, that their held-out rows can be read, and that the settings fit them.

    Args:
        task: Spec of the tasks.
        given: Settings of the user, by the names of `EvaluationSettings`.
        defaults: Settings where neither the user nor the task gives one.

    Raises:
        UserError: the first thing that is wrong.
    """
    for spec in parse_task_specs(task):
        bound = bind(spec)
        check_opponent(bound)
        settings, _ = settings_of(bound, given, defaults)
        subset(held_out(bound, size=settings.size, split=settings.split).rows(), settings.subset_frac)


def check_model_and_device(config: RunConfig) -> None:
    """Check the names of a resolved configuration's model, adapter and device.

    Raises:
        UserError: no such model, adapter or device.
    """
    assert config.model is not None, "the configuration is resolved"
    check_model(config.model, config.adapter)
    check_device(config.device)
