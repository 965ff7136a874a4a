"""Any task in SkyRL, as an environment of skyrl-gym.

    from grpo_sdk.interop.skyrl import dataset, register
    register()                                              # in the entry point, before training
    dataset("math.gsm8k").to_parquet("train.parquet")       # environment.env_class=grpo

Several turns, games and tools need `generator.max_turns` of at least the task's. Tools are called in text, since the
messages of SkyRL have no calls: a system message describes them, and results are messages of the user. An environment
is not told that the length limit ended a completion, so the policy reads of a call that was cut off that it is broken.

SkyRL cannot leave out a completion: one that cannot be scored, e.g. since a tool hangs, raises `UnscoredError`, which
ends the run. Read in skyrl-gym 0.4.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grpo_sdk.episodes.player import run
from grpo_sdk.errors import UserError
from grpo_sdk.interop.adapter import Conversation, Messages, TaskAdapter, dataset_of, requires, shared_adapter
from grpo_sdk.plugins.task_objects import AnyTask
from grpo_sdk.scoring.parts import log_values
from grpo_sdk.task.row import Row

with requires("skyrl_gym", "pip install skyrl-gym"):
    import skyrl_gym
    from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

ENVIRONMENT = "grpo"
"""Name of the environment, for `env_class`."""


def register(name: str = ENVIRONMENT) -> None:
    """Register the environment, which plays every task; a row says which."""
    skyrl_gym.register(id=name, entry_point=TaskEnv)


def dataset(task: AnyTask) -> Any:
    """The rows of a task as a `datasets.Dataset` with the columns that SkyRL and the environment read.

    Raises:
        UserError: SkyRL cannot train the task.
    """
    with TaskAdapter(task, "SkyRL", "episode", workers=1, takes_tools="text") as adapter:
        return dataset_of(adapter, _record)


def _record(adapter: TaskAdapter, row: Row) -> dict[str, Any]:
    return {
        "data_source": adapter.task.name,
        "prompt": adapter.first_messages(row),
        "env_class": ENVIRONMENT,
        "reward_spec": {"method": "rule", "ground_truth": row.model_dump_json()},
        "task": adapter.task.spec,
    }


class TaskEnv(BaseTextEnv):
    """One episode of a task.

    Args:
        env_config: Not used.
        extras: Columns of the row: `task` and `reward_spec.ground_truth`.
    """

    def __init__(self, env_config: Any = None, extras: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        extras = extras or {}
        try:
            spec, row = extras["task"], extras["reward_spec"]["ground_truth"]
        except (KeyError, TypeError):
            raise UserError(
                "SkyRL's row has no columns 'task' and 'reward_spec.ground_truth': write the data with "
                "grpo_sdk.interop.skyrl.dataset(TASK).to_parquet(FILE)."
            ) from None
        self._adapter = shared_adapter(spec, "SkyRL", "episode", takes_tools="text")
        self._conversation = Conversation(self._adapter, row)
        self._metrics: dict[str, float] = {}
        self.max_turns = self._adapter.task.max_turns

    def init(self, prompt: Messages) -> tuple[Messages, dict[str, Any]]:
        """Begin the episode."""
        return run(self._conversation.begin()), {}

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Play a completion; the last one has the reward of the episode.

        Raises:
            UnscoredError: the episode cannot be scored.
        """
        self.turns += 1
        following = run(self._conversation.reply(action))
        if not self._conversation.is_over:
            return BaseTextEnvStepOutput(observations=following, reward=0.0, done=False, metadata={})
        score = self._adapter.scored(run(self._conversation.score()))
        self._metrics = log_values(self._adapter.task, score)
        metadata = {**self._metrics, "why": score.why}
        return BaseTextEnvStepOutput(observations=[], reward=score.value, done=True, metadata=metadata)

    def get_metrics(self) -> dict[str, float]:
        """`solved`, `valid` and every part of the reward."""
        return self._metrics
