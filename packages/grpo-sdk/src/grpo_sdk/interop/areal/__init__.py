"""Any task of one turn in AReaL.

    trainer.train(workflow="grpo_sdk.interop.areal.TaskWorkflow", workflow_kwargs=…)      # as of RLVRWorkflow

`grpo export areal TASK DIR` writes rows, script and configuration. Rows are `record`s: the task's spec is the column
`task`, the row as JSON the column `row`, so one file may hold rows of many tasks.

There is no `reward_fn` on purpose. AReaL 1.0.4 runs one in a pool of processes and counts 15 s from when it is queued:
under load a reward of 0 takes the place of one that was not computed. The workflow scores by itself and returns None
where it cannot, which AReaL leaves out of the group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from grpo_sdk.interop.adapter import TaskAdapter
from grpo_sdk.task.row import Row

if TYPE_CHECKING:
    from grpo_sdk.interop.areal.workflow import TaskWorkflow

__all__ = ["TaskWorkflow", "record"]


def record(adapter: TaskAdapter, row: Row) -> dict[str, Any]:
    """One row of AReaL's data."""
    messages = adapter.first_messages(row)
    return {"messages": messages, "task": adapter.task.spec, "row": row.model_dump_json()}


def __getattr__(name: str) -> Any:
    if name != "TaskWorkflow":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from grpo_sdk.interop.areal.workflow import TaskWorkflow  # here, because it needs AReaL

    return TaskWorkflow
