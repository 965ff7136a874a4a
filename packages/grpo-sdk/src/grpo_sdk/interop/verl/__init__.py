"""Any task in verl: its reward function, and an agent loop for tasks of several turns, games and stop strings.

    reward.custom_reward_function.path=pkg://grpo_sdk.interop.verl            # compute_score, its default name

`grpo export verl TASK DIR` writes rows, configuration and command line. Rows are `record`s: the task's spec is
`data_source`, the row as JSON `reward_model.ground_truth`, so one file may hold rows of many tasks.

Read in verl 0.9.1, with its default trainer (`trainer.use_v1=true`): a session whose reward raises is missing from its
group's batch and baseline (in the asynchronous trainers its whole group is replaced), and so is one whose agent loop
returns no output. The deprecated trainer ends the run instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from grpo_sdk.interop.verl.reward import compute_score, record

if TYPE_CHECKING:
    from grpo_sdk.interop.verl.agent_loop import TaskAgentLoop

__all__ = ["TaskAgentLoop", "compute_score", "record"]


def __getattr__(name: str) -> Any:
    if name != "TaskAgentLoop":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from grpo_sdk.interop.verl.agent_loop import TaskAgentLoop  # here, because it needs verl

    return TaskAgentLoop
