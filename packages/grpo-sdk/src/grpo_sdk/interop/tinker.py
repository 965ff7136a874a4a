"""Any task in tinker-cookbook, as a builder of its data set.

    from grpo_sdk.interop.tinker import TaskDatasetBuilder
    train.Config(dataset_builder=TaskDatasetBuilder(task="math.gsm8k", batch_size=64, group_size=8, …), …)

Several turns, games against an opponent, tools and group rewards are trained, too. Prompts with tools are made by the
tokenizer's chat template, or by the library `renderers`, and go on with the tokens that were sampled. A completion that
cannot be scored raises `UnscoredError`: with `rollout_error_tolerance=MinViableGroup()` in the training's configuration
the rest of its group is trained on; by default it ends the run. Read in tinker-cookbook 0.5.8 and 0.6.1.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from grpo_sdk.chat import encode_prompt
from grpo_sdk.episodes.episode import Reply
from grpo_sdk.episodes.player import arun
from grpo_sdk.errors import UserError
from grpo_sdk.interop.adapter import Conversation, TaskAdapter, requires, shared_adapter
from grpo_sdk.scoring.parts import log_values
from grpo_sdk.task.row import Message
from grpo_sdk.task.score import Score

with requires("tinker_cookbook", "pip install 'tinker-cookbook==0.5.8'", "chz", "tinker", oldest="0.5.8"):
    import chz
    import tinker
    from tinker_cookbook import renderers
    from tinker_cookbook.rl import types
    from tinker_cookbook.tokenizer_utils import get_tokenizer


logger = logging.getLogger(__name__)


class TaskEnv(types.Env):
    """One episode of a task.

    Args:
        adapter: The task.
        row: The row as JSON.
        renderer: Writes prompts for the model.
        sample: Number of the rollout in its group.

    Attributes:
        text: The last completion; with tools, the whole episode.
        score: Score of the episode, when it is over.
    """

    def __init__(self, adapter: TaskAdapter, row: str, renderer: renderers.Renderer, sample: int) -> None:
        self._adapter, self._renderer = adapter, renderer
        self._conversation = Conversation(adapter, row, sample)
        self._encoder = adapter.encoder(renderer.tokenizer) if adapter.task.task.has_tools else None
        self._prompt_ids: tuple[int, ...] = ()
        self.text, self.score = "", Score(None, why="the episode is not over", fault="infrastructure")

    async def initial_observation(self) -> tuple[types.Observation, Any]:
        """Begin the episode."""
        await arun(self._conversation.begin())
        return self._observation()

    async def step(self, action: types.Action, *, extra: types.ActionExtra | None = None) -> types.StepResult:
        """Play a completion; the last one has the reward of the episode.

        Raises:
            UnscoredError: the episode cannot be scored.
        """
        said: str | Reply[Any]
        if self._encoder is None:
            self.text = said = self._decode(action)
        else:
            stop = None if extra is None else extra.get("stop_reason")
            said = self._encoder.sampled(self._prompt_ids, action, is_cut=None if stop is None else stop == "length")
        await arun(self._conversation.reply(said))
        if not self._conversation.is_over:
            observation, stop = self._observation()
            return types.StepResult(0.0, episode_done=False, next_observation=observation, next_stop_condition=stop)
        if self._encoder is not None:  # what rewards compare that see a group
            self.text = next(iter(self._conversation.episode.scored_texts().values()), "")
        self.score = self._adapter.scored(await arun(self._conversation.score()))
        assert self.score.value is not None  # `scored` has checked it
        task = self._adapter.task
        return types.StepResult(
            self.score.value,
            episode_done=True,
            next_observation=tinker.ModelInput.empty(),
            next_stop_condition=self._renderer.get_stop_sequences(),
            # A group's comparison logs the whole score; tinker would take the mean of it and of what is known here.
            metrics={} if task.task.group_specs() else log_values(task, self.score),
            logs={"why": self.score.why},
        )

    def _observation(self) -> tuple[types.Observation, Any]:
        stop = self._renderer.get_stop_sequences()
        if self._encoder is None:
            return self._renderer.build_generation_prompt(self._conversation.messages), stop
        self._prompt_ids = self._encoder.prompt_ids(self._conversation.episode)
        return tinker.ModelInput.from_ints(list(self._prompt_ids)), stop

    def _decode(self, action: types.Action) -> str:
        """The completion as the model wrote it, without what the renderer ends it with."""
        stop = self._renderer.get_stop_sequences()
        tokens = list(action)
        if tokens and tokens[-1] in stop:
            tokens.pop()
        text = str(self._renderer.tokenizer.decode(tokens))
        return next((text.removesuffix(end) for end in stop if isinstance(end, str) and text.endswith(end)), text)


@dataclass(frozen=True)
class TaskGroupBuilder(types.EnvGroupBuilder):
    """Builds the rollouts of a row; it pickles.

    Attributes:
        task: Spec of the task.
        row: The row as JSON.
        renderer: Writes prompts for the model.
        group_size: Number of rollouts.
    """

    task: str
    row: str
    renderer: renderers.Renderer
    group_size: int

    async def make_envs(self) -> Sequence[types.Env]:
        """Create one environment for each rollout."""
        return [TaskEnv(self._adapter, self.row, self.renderer, index) for index in range(self.group_size)]

    async def compute_group_rewards(
        self, trajectory_group: list[types.Trajectory], env_group: Sequence[types.Env]
    ) -> list[tuple[float, types.Metrics]]:
        """What the rewards that compare completions add to those of the completions.

        Raises:
            UnscoredError: a completion of the group cannot be compared.
        """
        adapter, envs = self._adapter, [env for env in env_group if isinstance(env, TaskEnv)]
        if not adapter.task.task.group_specs():
            return [(0.0, {}) for _ in trajectory_group]
        scores = await asyncio.to_thread(
            adapter.compare, [env.text for env in envs], self.row, [env.score for env in envs]
        )
        rewards: list[tuple[float, types.Metrics]] = []
        for env, score in zip(envs, scores, strict=True):
            value, alone = adapter.scored(score).value, env.score.value
            assert value is not None and alone is not None
            rewards.append((value - alone, {**log_values(adapter.task, score)}))
        return rewards

    def logging_tags(self) -> list[str]:
        """The name of the task."""
        return [self._adapter.task.name]

    @property
    def _adapter(self) -> TaskAdapter:
        return _adapter(self.task)


class TaskDataset(types.RLDataset):
    """Groups of a task's rows, in an order of its own for each pass.

    Args:
        task: Spec of the task.
        renderer: Writes prompts for the model.
        batch_size: Groups of a batch.
        group_size: Rollouts of a group.
        passes: Passes over the rows.
        seed: Seed of the order.
    """

    def __init__(
        self, task: str, renderer: renderers.Renderer, batch_size: int, group_size: int, passes: int, seed: int
    ) -> None:
        adapter = _adapter(task)
        count = len(adapter.task.rows())
        self._rows = list(islice(adapter.shuffled(seed), passes * count))
        self._task, self._renderer, self._batch_size, self._group_size = task, renderer, batch_size, group_size
        if len(self) == 0:
            raise UserError(f"task {adapter.task.name!r} has {count} rows, fewer than batch_size={batch_size}.")
        if adapter.task.task.has_tools:
            asked = Message(role="user", content="?")
            written = renderer.build_generation_prompt([asked]).to_ints()
            if tuple(written) != encode_prompt(renderer.tokenizer, (asked,)):
                logger.warning("%s: tools are shown by the chat template, from which the renderer differs", task)

    def __len__(self) -> int:
        return len(self._rows) // self._batch_size

    def get_batch(self, index: int) -> Sequence[types.EnvGroupBuilder]:
        """The groups of a batch."""
        rows = self._rows[index * self._batch_size : (index + 1) * self._batch_size]
        return [TaskGroupBuilder(self._task, row, self._renderer, self._group_size) for row in rows]


def _adapter(spec: str) -> TaskAdapter:
    return shared_adapter(spec, "tinker", "episodes", takes_tools="text")


@chz.chz
class TaskDatasetBuilder(types.RLDatasetBuilder):
    """Builds the data sets of a task.

    Attributes:
        task: Spec of the task: `math.gsm8k`.
        batch_size: Groups of a batch.
        group_size: Rollouts of a group.
        model_name_for_tokenizer: Model whose tokenizer is used.
        renderer_name: Name of tinker's renderer.
        test_task: Spec of a task to test on: `math.gsm8k?split=test`.
        passes: Passes over the rows.
        seed: Seed of the order of the rows.
    """

    task: str
    batch_size: int
    group_size: int
    model_name_for_tokenizer: str
    renderer_name: str
    test_task: str | None = None
    passes: int = 1
    seed: int = 0

    async def __call__(self) -> tuple[types.RLDataset, types.RLDataset | None]:
        """Build the data set, and that of the test if there is one."""
        tokenizer = get_tokenizer(self.model_name_for_tokenizer)
        renderer = renderers.get_renderer(self.renderer_name, tokenizer=tokenizer)
        train = TaskDataset(self.task, renderer, self.batch_size, self.group_size, self.passes, self.seed)
        if self.test_task is None:
            return train, None
        return train, TaskDataset(self.test_task, renderer, 1, 1, 1, self.seed)
