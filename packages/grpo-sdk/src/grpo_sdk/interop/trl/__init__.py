"""Any task in TRL's `GRPOTrainer`: its rows as a dataset, its reward functions, its turns.

    from grpo_sdk.interop.trl import TrlTask
    task = TrlTask("math.gsm8k")
    GRPOTrainer(
        model=…, train_dataset=task.train_dataset, reward_funcs=task.reward_funcs, rollout_func=task.rollout_func
    ).train()

Rows are passed as JSON strings, so that a score is a function of task name, row and completion text alone.
"""

from __future__ import annotations

from typing import Any

from grpo_sdk.interop.trl.completions import completion_text
from grpo_sdk.interop.trl.reward import TaskReward, reward_funcs
from grpo_sdk.interop.trl.rows import dataset
from grpo_sdk.interop.trl.task import TrlTask
from grpo_sdk.plugins.loading import of_trainer

__all__ = ["TaskReward", "TrlTask", "completion_text", "dataset", "reward_funcs"]


def __getattr__(name: str) -> Any:
    if name != "EvaluationCallback":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return of_trainer("grpo_core.evaluation.trl:EvaluationCallback")  # it brings torch and transformers
