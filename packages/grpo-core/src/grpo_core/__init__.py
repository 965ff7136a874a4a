"""Verifiable tasks for reinforcement learning of language models.

What a task author imports. Each name is loaded when it is first used, so that importing the package costs next to
nothing; `train`, `evaluate` and `Completer` import torch, the others do not.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from grpo_core.algorithms.variant import Variant
    from grpo_core.callbacks import Callback
    from grpo_core.config.resolution import task_for_model
    from grpo_core.display.plugin_progress import show_progress
    from grpo_core.errors import GrpoError, InfrastructureError, UserError
    from grpo_core.evaluation.completer import Completer
    from grpo_core.evaluation.evaluate import evaluate
    from grpo_core.killable import KillablePool, Outcome, inside_worker, refuse_at_import
    from grpo_core.plugins.drawing import Frame
    from grpo_core.plugins.facts import Diagnosis, EmbeddedModel
    from grpo_core.plugins.gpu_profile import GpuProfile
    from grpo_core.plugins.hooks import hookimpl
    from grpo_core.plugins.models import check_model
    from grpo_core.plugins.tasks import load_task
    from grpo_core.scoring.scorer import Scorer, score
    from grpo_core.task.bound import BoundTask
    from grpo_core.task.calling import errors_named
    from grpo_core.task.composition import graduated, ladder, reward, weighted_sum
    from grpo_core.task.evaluation import EvaluationDefaults, EvaluationRecord, EvaluationReport
    from grpo_core.task.game.rules import Game, GameConfig, Rules
    from grpo_core.task.group_rewards import group_reward
    from grpo_core.task.opponent import Opponent
    from grpo_core.task.remote import Moves, Remote, RemoteReply, RemoteTurn
    from grpo_core.task.row import Message, Prompt, Row, TaskConfig
    from grpo_core.task.score import Invalid, Score
    from grpo_core.task.task import Task
    from grpo_core.training.python import resume, train, warm_start

__version__ = "0.1.0"


def _keep_libraries_importable() -> None:
    """Turn plugins of pydantic and torch off where their search for them fails: an entry_points.txt cannot be read."""
    if "pydantic" in sys.modules or "PYDANTIC_DISABLE_PLUGINS" in os.environ:
        return
    from importlib import metadata

    try:
        metadata.entry_points(group="pydantic")
    except Exception:  # Python reads these files without checking them; the file's package is listed by the plugin host
        os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"
        os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")


def _sleep_while_waiting() -> None:
    """Let torch's threads spin for microseconds and then sleep while they wait for one another.

    By themselves they spin for milliseconds, which beside other work costs several times the step; without any spinning
    an idle machine takes a fifth longer.
    """
    if "torch" not in sys.modules and not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys():
        os.environ.update(OMP_WAIT_POLICY="PASSIVE", GOMP_SPINCOUNT="2000")


def _bound_kernel_caches() -> None:
    """Let oneDNN and torch's layer over it keep the kernels of 256 shapes of matrix products, not of 1024.

    With a kernel they keep its workspace, up to the size of its result. A batch of tokens brings about 20 new shapes,
    sampling five for each number of rows; the others would stay for hundreds of megabytes.
    """
    for name in ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY"):
        os.environ.setdefault(name, "256")


_keep_libraries_importable()
_sleep_while_waiting()
_bound_kernel_caches()

_MODULE_OF = {
    "BoundTask": "task.bound",
    "Callback": "callbacks",
    "Completer": "evaluation.completer",
    "Diagnosis": "plugins.facts",
    "EmbeddedModel": "plugins.facts",
    "EvaluationDefaults": "task.evaluation",
    "EvaluationRecord": "task.evaluation",
    "EvaluationReport": "task.evaluation",
    "Frame": "plugins.drawing",
    "Game": "task.game.rules",
    "GameConfig": "task.game.rules",
    "GpuProfile": "plugins.gpu_profile",
    "GrpoError": "errors",
    "InfrastructureError": "errors",
    "Invalid": "task.score",
    "KillablePool": "killable",
    "Message": "task.row",
    "Moves": "task.remote",
    "Opponent": "task.opponent",
    "Outcome": "killable",
    "Prompt": "task.row",
    "Remote": "task.remote",
    "RemoteReply": "task.remote",
    "RemoteTurn": "task.remote",
    "Row": "task.row",
    "Rules": "task.game.rules",
    "Score": "task.score",
    "Scorer": "scoring.scorer",
    "Task": "task.task",
    "TaskConfig": "task.row",
    "UserError": "errors",
    "Variant": "algorithms.variant",
    "check_model": "plugins.models",
    "errors_named": "task.calling",
    "evaluate": "evaluation.evaluate",
    "graduated": "task.composition",
    "group_reward": "task.group_rewards",
    "hookimpl": "plugins.hooks",
    "inside_worker": "killable",
    "ladder": "task.composition",
    "load_task": "plugins.tasks",
    "refuse_at_import": "killable",
    "resume": "training.python",
    "reward": "task.composition",
    "score": "scoring.scorer",
    "show_progress": "display.plugin_progress",
    "task_for_model": "config.resolution",
    "train": "training.python",
    "warm_start": "training.python",
    "weighted_sum": "task.composition",
}

__all__ = [
    "BoundTask",
    "Callback",
    "Completer",
    "Diagnosis",
    "EmbeddedModel",
    "EvaluationDefaults",
    "EvaluationRecord",
    "EvaluationReport",
    "Frame",
    "Game",
    "GameConfig",
    "GpuProfile",
    "GrpoError",
    "InfrastructureError",
    "Invalid",
    "KillablePool",
    "Message",
    "Moves",
    "Opponent",
    "Outcome",
    "Prompt",
    "Remote",
    "RemoteReply",
    "RemoteTurn",
    "Row",
    "Rules",
    "Score",
    "Scorer",
    "Task",
    "TaskConfig",
    "UserError",
    "Variant",
    "check_model",
    "errors_named",
    "evaluate",
    "graduated",
    "group_reward",
    "hookimpl",
    "inside_worker",
    "ladder",
    "load_task",
    "refuse_at_import",
    "resume",
    "reward",
    "score",
    "show_progress",
    "task_for_model",
    "train",
    "warm_start",
    "weighted_sum",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
