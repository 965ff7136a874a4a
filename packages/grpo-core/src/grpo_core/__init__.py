"""Verifiable tasks for reinforcement learning of language models.

What a task author imports; none of it imports torch. `train` and `evaluate` do, when they are first touched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from grpo_core import moved
from grpo_core.algorithms.variant import Variant
from grpo_core.errors import GrpoError, InfrastructureError, UserError
from grpo_core.plugins.host import Diagnosis, EmbeddedModel, hookimpl
from grpo_core.plugins.tasks import load_task
from grpo_core.task.bound import BoundTask
from grpo_core.task.composition import graduated, ladder, reward, weighted_sum
from grpo_core.task.evaluation import EvaluationDefaults, EvaluationRecord, EvaluationReport
from grpo_core.task.game import Game, GameConfig
from grpo_core.task.opponent import Opponent
from grpo_core.task.row import Message, Prompt, Row, TaskConfig
from grpo_core.task.score import Invalid, Score
from grpo_core.task.task import Task

if TYPE_CHECKING:
    from grpo_core.config.resolution import task_for_model
    from grpo_core.evaluation.completer import Completer
    from grpo_core.evaluation.evaluate import evaluate
    from grpo_core.killable import KillablePool, Outcome, inside_worker, refuse_at_import
    from grpo_core.scoring import Scorer
    from grpo_core.training.trainer import train

__version__ = "0.1.0"

moved.install()

__all__ = [
    "BoundTask",
    "Completer",
    "Diagnosis",
    "EmbeddedModel",
    "EvaluationDefaults",
    "EvaluationRecord",
    "EvaluationReport",
    "Game",
    "GameConfig",
    "GrpoError",
    "InfrastructureError",
    "Invalid",
    "KillablePool",
    "Message",
    "Opponent",
    "Outcome",
    "Prompt",
    "Row",
    "Score",
    "Scorer",
    "Task",
    "TaskConfig",
    "UserError",
    "Variant",
    "evaluate",
    "graduated",
    "hookimpl",
    "inside_worker",
    "ladder",
    "load_task",
    "refuse_at_import",
    "reward",
    "task_for_model",
    "train",
    "weighted_sum",
]

_LAZY = {
    "Completer": "grpo_core.evaluation.completer",
    "KillablePool": "grpo_core.killable",
    "Outcome": "grpo_core.killable",
    "Scorer": "grpo_core.scoring",
    "evaluate": "grpo_core.evaluation.evaluate",
    "inside_worker": "grpo_core.killable",
    "refuse_at_import": "grpo_core.killable",
    "task_for_model": "grpo_core.config.resolution",
    "train": "grpo_core.training.trainer",
}
"""Names that cost an import (torch, or processes), loaded when first touched."""


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        import importlib

        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
