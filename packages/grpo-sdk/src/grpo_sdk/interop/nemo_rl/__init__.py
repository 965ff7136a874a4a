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

from typing import TYPE_CHECKING, Any

from grpo_sdk.interop.nemo_rl.rows import record, write_rows

if TYPE_CHECKING:
    from grpo_sdk.interop.nemo_rl.environment import ENVIRONMENT, TaskEnvironment, TaskSteps, register

__all__ = ["ENVIRONMENT", "TaskEnvironment", "TaskSteps", "record", "register", "write_rows"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from grpo_sdk.interop.nemo_rl import environment  # here, because it needs NeMo-RL

    return getattr(environment, name)
