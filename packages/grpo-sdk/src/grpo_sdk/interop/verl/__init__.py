"""Any task in verl: its reward function, and an agent loop for several turns, games, tools and stop strings.

    reward.custom_reward_function.path=pkg://grpo_sdk.interop.verl            # compute_score, its default name

`grpo export verl TASK DIR` writes rows, configuration and command line. Rows are `record`s: the task's spec is
`data_source`, the row as JSON `reward_model.ground_truth`, so one file may hold rows of many tasks.

Read in verl 0.9.1, with its default trainer (`trainer.use_v1=true`): a session whose reward raises is missing from its
group's batch and baseline (in the asynchronous trainers its whole group is replaced), and so is one whose agent loop
returns no output. The deprecated trainer ends the run instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from grpo_sdk.interop.adapter import TaskAdapter, shared_adapter
from grpo_sdk.scoring.parts import log_values
from grpo_sdk.task.row import Row

if TYPE_CHECKING:
    from grpo_sdk.interop.verl.agent_loop import TaskAgentLoop

__all__ = ["TaskAgentLoop", "compute_score", "record"]


async def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: object = None,
    *,
    workers: int | None = None,
    timeout_s: float | None = None,
    opponent_url: str | None = None,
    **unused: object,
) -> dict[str, float]:
    """Score a completion.

    Args:
        data_source: Spec of the task.
        solution_str: The completion.
        ground_truth: Row as JSON.
        extra_info: Not used.
        workers: Scoring processes per reward worker, of which verl starts `reward.num_workers`; by default one per
            usable core. This and the next two are set as `+reward.custom_reward_function.reward_kwargs.workers=4`.
        timeout_s: Limit per completion; by default the task's own.
        opponent_url: Endpoint that plays the task's opponent.
        **unused: What else verl passes.

    Returns:
        `score`, and to be logged `solved`, `valid` and every part.

    Raises:
        UnscoredError: the completion could not be scored; verl leaves it out.
        UserError: verl's reward cannot score the task; says why.
    """
    adapter = shared_adapter(data_source, "verl", workers=workers, timeout_s=timeout_s, opponent_url=opponent_url)
    (score,) = await adapter.ascore([solution_str], [ground_truth])
    return {**log_values(adapter.task, score), "score": adapter.value(score)}


def record(adapter: TaskAdapter, row: Row, index: int = 0) -> dict[str, Any]:
    """One row of verl's data.

    Args:
        adapter: The task.
        row: The row.
        index: Its place in the file.
    """
    task = adapter.task
    return {
        "data_source": task.spec,
        "prompt": adapter.first_messages(row),
        "ability": task.name,
        "reward_model": {"style": "rule", "ground_truth": row.model_dump_json()},
        "extra_info": {"index": index, "id": row.id},
    }


def __getattr__(name: str) -> Any:
    if name != "TaskAgentLoop":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from grpo_sdk.interop.verl.agent_loop import TaskAgentLoop  # here, because it needs verl

    return TaskAgentLoop
