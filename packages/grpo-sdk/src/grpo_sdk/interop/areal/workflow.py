"""AReaL's workflow for a task; see `grpo_sdk.interop.areal`."""

from __future__ import annotations

import logging
from typing import Any

from grpo_sdk.errors import UnscoredError
from grpo_sdk.interop.adapter import requires, shared_adapter
from grpo_sdk.scoring.parts import log_values

with requires("areal", "pip install areal==1.0.4, as the README.md of `grpo export areal TASK DIR` says"):
    from areal import workflow_context
    from areal.utils import stats_tracker
    from areal.workflow.rlvr import RLVRWorkflow

logger = logging.getLogger(__name__)


class TaskWorkflow(RLVRWorkflow):
    """AReaL's own workflow of one turn, with the reward of the task that a row's column `task` names.

    Args:
        gconfig: As of `RLVRWorkflow`.
        tokenizer: Tokenizer of the policy.
        workers: Scoring processes; by default one per usable core.
        timeout_s: Limit per completion; by default the task's own.
        opponent_url: Endpoint that plays the tasks' opponent.
        **options: Other arguments of `RLVRWorkflow`.
    """

    def __init__(
        self,
        gconfig: Any,
        tokenizer: Any,
        *,
        workers: int | None = None,
        timeout_s: float | None = None,
        opponent_url: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(self._reward, gconfig, tokenizer, **options)
        self._options: dict[str, Any] = {"workers": workers, "timeout_s": timeout_s, "opponent_url": opponent_url}
        self.async_reward_fn = self._reward  # in place of the wrapper, whose time-out is a reward of 0

    async def arun_episode(self, engine: Any, data: dict[str, Any]) -> dict[str, Any] | None:
        """Sample and score a completion; None, which AReaL leaves out, where it could not be scored."""
        try:
            result: dict[str, Any] = await super().arun_episode(engine, data)
        except UnscoredError as error:
            logger.warning("left out: %s", error)
            return None
        return result

    async def _reward(self, prompt: str, completion: str, prompt_ids: Any, completion_ids: Any, **data: Any) -> float:
        adapter = shared_adapter(data["task"], "AReaL", **self._options)
        (score,) = await adapter.ascore([completion], [data["row"]])
        reward = adapter.value(score)
        stats_tracker.get(workflow_context.stat_scope()).scalar(**log_values(adapter.task, score))
        return reward
