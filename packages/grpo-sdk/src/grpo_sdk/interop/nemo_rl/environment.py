"""NeMo-RL's environment for a task; see `grpo_sdk.interop.nemo_rl`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from grpo_sdk.interop.adapter import read_label, requires, shared_adapter

with requires("nemo_rl", "clone github.com/NVIDIA-NeMo/RL and install it", "ray"):
    import ray
    import torch
    from nemo_rl.distributed.ray_actor_environment_registry import ACTOR_ENVIRONMENT_REGISTRY
    from nemo_rl.distributed.virtual_cluster import PY_EXECUTABLES
    from nemo_rl.environments.interfaces import EnvironmentInterface, EnvironmentReturn
    from nemo_rl.environments.utils import register_env

ENVIRONMENT = "grpo"
"""Name of the environment, for `env_name`."""

_ACTOR = f"{__name__}.TaskEnvironment"


def register() -> None:
    """Register the environment, which scores every task; a row says which."""
    register_env(ENVIRONMENT, _ACTOR)
    ACTOR_ENVIRONMENT_REGISTRY[_ACTOR] = PY_EXECUTABLES.SYSTEM


class TaskSteps(EnvironmentInterface):
    """Scores completions of any task.

    Args:
        config: Not used.
    """

    def __init__(self, config: dict[str, Any] | None = None) -> None:
        self.config = config

    def step(
        self, message_log_batch: Sequence[Sequence[dict[str, Any]]], metadata: Sequence[dict[str, Any]]
    ) -> EnvironmentReturn:
        """Score the last message of each conversation.

        Raises:
            DataError: a row is not one of `write_rows`.
            UnscoredError: a completion cannot be scored.
        """
        texts = [str(messages[-1]["content"]) for messages in message_log_batch]
        return EnvironmentReturn(
            observations=[{"role": "environment", "content": ""}] * len(texts),
            metadata=list(metadata),
            next_stop_strings=[None] * len(texts),
            rewards=torch.tensor(_rewards(texts, [each["ground_truth"] for each in metadata])),
            terminateds=torch.ones(len(texts)),
            answers=None,
        )

    def global_post_process_and_metrics(self, batch: Any) -> tuple[Any, dict[str, float]]:
        """Leave a batch as it is."""
        return batch, {}

    def shutdown(self) -> None:
        """Nothing to do: the workers end with the process."""


TaskEnvironment = ray.remote(max_restarts=-1, max_task_retries=-1, max_concurrency=1000)(TaskSteps)


def _rewards(texts: Sequence[str], labels: Sequence[str]) -> list[float]:
    """Rewards of completions, scored task by task."""
    members: dict[str, list[int]] = defaultdict(list)
    rows = []
    for index, label in enumerate(labels):
        spec, row = read_label(label, "NeMo-RL", "grpo_sdk.interop.nemo_rl.write_rows(TASK, FILE)")
        members[spec].append(index)
        rows.append(row)
    rewards = [0.0] * len(texts)
    for spec, own in members.items():
        adapter = shared_adapter(spec, "NeMo-RL")
        for index, score in zip(own, adapter.score([texts[i] for i in own], [rows[i] for i in own]), strict=True):
            rewards[index] = adapter.value(score)
    return rewards
