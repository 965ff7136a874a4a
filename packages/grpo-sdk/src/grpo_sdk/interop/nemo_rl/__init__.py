"""Any task of one turn in NeMo-RL, as an environment.

    # train.py, in place of examples/run_grpo.py: python train.py --config …
    import runpy
    from grpo_sdk.interop.nemo_rl import register
    register()
    runpy.run_path("examples/run_grpo.py", run_name="__main__")

    # configuration
    data: {train: {dataset_name: ResponseDataset, data_path: train.jsonl}, default: {env_name: grpo}}
    env: {grpo: {}}

`grpo_sdk.interop.nemo_rl.write_rows("math.gsm8k", "train.jsonl")` writes the rows, for `math_hf_data_processor`.
NeMo-RL writes what an environment answers between the model's turns without the chat template, so tasks of several
turns are refused. It cannot leave out a completion: one that cannot be scored raises `UnscoredError`, which ends the
run. Read in NeMo-RL's sources of August 2026.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_sdk.errors import UserError
from grpo_sdk.interop.adapter import TaskAdapter, label_of, write_jsonl
from grpo_sdk.plugins.task_objects import AnyTask
from grpo_sdk.task.row import Row

if TYPE_CHECKING:
    from grpo_sdk.interop.nemo_rl.environment import ENVIRONMENT, TaskEnvironment, TaskSteps, register

__all__ = ["ENVIRONMENT", "TaskEnvironment", "TaskSteps", "record", "register", "write_rows"]


def record(adapter: TaskAdapter, row: Row) -> dict[str, str]:
    """A row as NeMo-RL's `ResponseDataset` reads it.

    Raises:
        UserError: its prompt is not one message by the user.
    """
    messages = adapter.first_messages(row)
    if [message["role"] for message in messages] != ["user"]:
        raise UserError(
            f"task {adapter.task.name!r}: NeMo-RL's math_hf_data_processor writes one message by the user, and the "
            f"prompt has {' and '.join(message['role'] for message in messages)}. Use another template."
        )
    return {"input": messages[0]["content"], "output": label_of(adapter, row)}


def write_rows(task: AnyTask, path: str | Path) -> None:
    """Write the rows of a task as the JSONL that NeMo-RL's `ResponseDataset` reads.

    Args:
        task: The task.
        path: The file.

    Raises:
        UserError: NeMo-RL cannot train the task.
    """
    with TaskAdapter(task, "NeMo-RL") as adapter:
        write_jsonl(adapter, record, path)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from grpo_sdk.interop.nemo_rl import environment  # here, because it needs NeMo-RL

    return getattr(environment, name)
