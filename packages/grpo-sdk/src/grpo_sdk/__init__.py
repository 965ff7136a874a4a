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


class _BeforePydantic:
    """Called when pydantic is imported: the check needs importlib.metadata, which takes most of this package's time."""

    @classmethod
    def find_spec(cls, name: str, path: object = None, target: object = None) -> None:
        """Turn plugins of pydantic and torch off if their search would fail: an entry_points.txt cannot be read."""
        if name != "pydantic":
            return
        sys.meta_path.remove(cls)
        from importlib import metadata

        try:
            metadata.entry_points(group="pydantic")
        except Exception:  # Python reads these files without checking them; the plugin host lists the file's package
            os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"
            os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")


if "pydantic" not in sys.modules and "PYDANTIC_DISABLE_PLUGINS" not in os.environ:
    sys.meta_path.insert(0, _BeforePydantic)

_MODULE_OF = {
    "BackgroundLoop": "endpoints.background",
    "BoundTask": "task.bound",
    "Call": "task.tools.calls",
    "Callback": "callbacks",
    "Diagnosis": "plugins.facts",
    "EmbeddedModel": "plugins.facts",
    "Environment": "task.tools.environment",
    "EvaluationDefaults": "task.evaluation",
    "EvaluationRecord": "task.evaluation",
    "EvaluationReport": "task.evaluation",
    "Frame": "plugins.facts",
    "Game": "task.game.rules",
    "GameConfig": "task.game.rules",
    "GamePosition": "task.game.rules",
    "GameStart": "task.game.rules",
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
    "Tool": "task.tools.tool",
    "ToolError": "task.tools.tool",
    "ToolFault": "task.tools.tool",
    "ToolTurn": "task.tools.calls",
    "UserError": "errors",
    "Variant": "plugins.variant",
    "check_model": "plugins.models",
    "errors_named": "task.calling",
    "graduated": "task.composition",
    "group_reward": "task.group_rewards",
    "hookimpl": "plugins.hooks",
    "inside_worker": "killable",
    "ladder": "task.composition",
    "load_task": "plugins.tasks",
    "mcp": "task.tools.mcp_server",
    "refuse_at_import": "killable",
    "reward": "task.composition",
    "schema_tool": "task.tools.tool",
    "score": "scoring.scorer",
    "show_progress": "display.progress",
    "tool": "task.tools.tool",
    "weighted_sum": "task.composition",
}

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
