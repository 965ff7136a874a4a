"""Verifiable tasks for reinforcement learning of language models: what a task author imports.

Each name is loaded when it is first used, so that importing the package costs next to nothing. No torch.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from grpo_sdk.callbacks import Callback
    from grpo_sdk.display.progress import show_progress
    from grpo_sdk.endpoints.background import BackgroundLoop
    from grpo_sdk.errors import GrpoError, InfrastructureError, UserError
    from grpo_sdk.killable import KillablePool, Outcome, inside_worker, refuse_at_import
    from grpo_sdk.plugins.facts import Diagnosis, EmbeddedModel, Frame
    from grpo_sdk.plugins.gpu_profile import GpuProfile
    from grpo_sdk.plugins.hooks import hookimpl
    from grpo_sdk.plugins.models import check_model
    from grpo_sdk.plugins.tasks import load_task
    from grpo_sdk.plugins.variant import Variant
    from grpo_sdk.scoring.scorer import Scorer, score
    from grpo_sdk.task.bound import BoundTask
    from grpo_sdk.task.calling import errors_named
    from grpo_sdk.task.composition import graduated, ladder, reward, weighted_sum
    from grpo_sdk.task.evaluation import EvaluationDefaults, EvaluationRecord, EvaluationReport
    from grpo_sdk.task.game.rules import Game, GameConfig, GamePosition, GameStart, Rules
    from grpo_sdk.task.group_rewards import group_reward
    from grpo_sdk.task.opponent import Opponent
    from grpo_sdk.task.remote import Moves, Remote, RemoteReply, RemoteTurn
    from grpo_sdk.task.row import Message, Prompt, Row, TaskConfig
    from grpo_sdk.task.score import Invalid, Score
    from grpo_sdk.task.task import Task
    from grpo_sdk.task.tools.calls import Call, ToolTurn
    from grpo_sdk.task.tools.environment import Environment
    from grpo_sdk.task.tools.mcp_server import mcp
    from grpo_sdk.task.tools.tool import Tool, ToolError, ToolFault, schema_tool, tool

__version__ = "0.1.0"


def _keep_libraries_importable() -> None:
    """Turn plugins of pydantic and torch off where their search for them fails: an entry_points.txt cannot be read.

    Python reads these files without checking them. The plugin host lists the file's package.
    """
    if "pydantic" in sys.modules or "PYDANTIC_DISABLE_PLUGINS" in os.environ:
        return
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")
        except OSError:
            continue
        for name in names:
            if name.endswith("-info") and not _is_readable(os.path.join(folder, name, "entry_points.txt")):
                os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"
                os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
                return


def _is_readable(file: str) -> bool:
    """Whether importlib.metadata can read a file; importing that takes three times as long as all else here."""
    try:
        with open(file, encoding="utf-8") as text:
            lines = [line.strip() for line in text.read().splitlines()]
    except OSError:  # there is none, or importlib.metadata passes over it, too
        return True
    except ValueError:
        return False
    is_in_section = False
    for line in lines:
        if line.startswith("[") and line.endswith("]"):
            is_in_section = True
        elif is_in_section and line and not line.startswith("#") and "=" not in line:
            return False
    return True


_keep_libraries_importable()

_NAMES = {
    "callbacks": "Callback",
    "display.progress": "show_progress",
    "endpoints.background": "BackgroundLoop",
    "errors": "GrpoError InfrastructureError UserError",
    "killable": "KillablePool Outcome inside_worker refuse_at_import",
    "plugins.facts": "Diagnosis EmbeddedModel Frame",
    "plugins.gpu_profile": "GpuProfile",
    "plugins.hooks": "hookimpl",
    "plugins.models": "check_model",
    "plugins.tasks": "load_task",
    "plugins.variant": "Variant",
    "scoring.scorer": "Scorer score",
    "task.bound": "BoundTask",
    "task.calling": "errors_named",
    "task.composition": "graduated ladder reward weighted_sum",
    "task.evaluation": "EvaluationDefaults EvaluationRecord EvaluationReport",
    "task.game.rules": "Game GameConfig GamePosition GameStart Rules",
    "task.group_rewards": "group_reward",
    "task.opponent": "Opponent",
    "task.remote": "Moves Remote RemoteReply RemoteTurn",
    "task.row": "Message Prompt Row TaskConfig",
    "task.score": "Invalid Score",
    "task.task": "Task",
    "task.tools.calls": "Call ToolTurn",
    "task.tools.environment": "Environment",
    "task.tools.mcp_server": "mcp",
    "task.tools.tool": "Tool ToolError ToolFault schema_tool tool",
}
"""Module -> the names that it has."""

_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "BackgroundLoop",
    "BoundTask",
    "Call",
    "Callback",
    "Diagnosis",
    "EmbeddedModel",
    "Environment",
    "EvaluationDefaults",
    "EvaluationRecord",
    "EvaluationReport",
    "Frame",
    "Game",
    "GameConfig",
    "GamePosition",
    "GameStart",
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
    "Tool",
    "ToolError",
    "ToolFault",
    "ToolTurn",
    "UserError",
    "Variant",
    "check_model",
    "errors_named",
    "graduated",
    "group_reward",
    "hookimpl",
    "inside_worker",
    "ladder",
    "load_task",
    "mcp",
    "refuse_at_import",
    "reward",
    "schema_tool",
    "score",
    "show_progress",
    "tool",
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
