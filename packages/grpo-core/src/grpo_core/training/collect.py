"""A step's batch of scored rollouts: prompts drawn, completed, and drawn again where a group would teach nothing."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from grpo_core.algorithms.advantages.groups import group_std
from grpo_core.config import TrainerConfig
from grpo_core.engines.compatibility import context_of
from grpo_core.policy.ranks import Ranks
from grpo_core.policy.sampler import sampling_of
from grpo_core.rollouts.group_rewards import with_group_rewards
from grpo_core.rollouts.rollout import PromptGroup, Rollout, packed, unpacked
from grpo_core.rollouts.sample import RolloutContext, sample_rollouts
from grpo_core.training.setup import Setup
from grpo_sdk.endpoints.base import Sampling, rest
from grpo_sdk.episodes.episode import learning_roles
from grpo_sdk.errors import EngineError, UserError
from grpo_sdk.rewards import soft_overlong
from grpo_sdk.task.mixture import Draw
from grpo_sdk.task.score import TOOLS, tool_seconds
from grpo_sdk.task.task import Task


@dataclass(frozen=True, slots=True)
class Collected:
    """The rollouts of one step, with their rewards.

    Attributes:
        groups: One prompt per group.
        rollouts: G per prompt, group by group.
        rewards: [N] float64 reward of each, NaN where it abstained.
        greedy_rewards: [N] reward of the greedy completion of each rollout's prompt, where the baseline needs it.
        metrics: Metrics of dynamic sampling and of tools; empty without them.
        started: When the step began, by `time.perf_counter`.
        generate_s: Seconds of sampling and scoring.
    """

    groups: Sequence[PromptGroup]
    rollouts: Sequence[Rollout]
    rewards: Tensor
    greedy_rewards: Tensor | None
    metrics: Mapping[str, float]
    started: float
    generate_s: float

    @property
    def labels(self) -> list[str]:
        """Task label of each rollout."""
        return [self.groups[rollout.group].draw.label for rollout in self.rollouts]


def rollout_context(
    setup: Setup,
    should_stop: Callable[[], bool] = lambda: False,
    on_wait: Callable[[int, int], None] = lambda done, total: None,
    on_idle: Callable[[float], None] = lambda seconds: None,
) -> RolloutContext:
    """What a run's rollouts are made with, the same in every step."""
    return RolloutContext(
        engine=setup.engine,
        scoring=setup.scoring,
        seed=setup.config.seed,
        max_context=context_of(setup.engine, setup.policy.model),
        should_stop=should_stop,
        on_wait=on_wait,
        on_idle=on_idle,
        schedule=setup.config.trainer.schedule,
    )


def groups_of(setup: Setup, draw: Draw) -> list[PromptGroup]:
    """The groups of a drawn prompt: one, or one for each side of an episode that the policy plays alone."""
    prompt_ids = setup.data.prompt_ids[draw.label][draw.row.id]
    return [PromptGroup(draw, prompt_ids, role) for role in learning_roles(draw.task, draw.row)]


def length_penalty(trainer: TrainerConfig, task: Task, rollout: Rollout) -> float:
    """The soft overlong penalty of a rollout; 0 where none is configured.

    Where the task's own limit is below the run's, completions end there, and the penalty begins so much earlier.
    """
    if trainer.soft_overlong_buffer is None:
        return 0.0
    longest = trainer.max_completion_length
    limit = min(longest, task.max_completion_length or longest)
    buffer = max(1, trainer.soft_overlong_buffer * limit // longest)
    lengths = [len(turn.completion.token_ids) for turn in rollout.turns]
    return sum(soft_overlong(length, max_length=limit, buffer=buffer) for length in lengths)


class Collector:
    """Draws prompts from the mixture and completes them.

    Args:
        setup: Engine, tasks, scorers, prompts and opponents of the run.
        ranks: The processes; each completes its share of the prompts.
        greedy: Whether each prompt also gets a greedy completion, whose reward is a baseline.
        should_stop: Called after every completion and while scores are waited for, where this is the only process:
            ranks stop together, between steps.
        on_wait: Told of scores that are waited for: how many there are, and will be.
    """

    def __init__(
        self,
        setup: Setup,
        ranks: Ranks,
        *,
        greedy: bool,
        should_stop: Callable[[], bool],
        on_wait: Callable[[int, int], None],
    ) -> None:
        self.config, self.setup, self.ranks, self._greedy = setup.config, setup, ranks, greedy
        trainer = self.config.trainer
        compared = [task.name for task in setup.tasks.trained.values() if task.task.group_specs()]
        if greedy and compared:
            raise UserError(
                f"{compared[0]}: its group rewards would be missing in the baseline {trainer.baseline}, which is the "
                "reward of a completion by itself. Use another trainer.baseline."
            )
        self._sampling = sampling_of(trainer)
        self._idle: list[float] = []
        stops = should_stop if ranks.size == 1 else lambda: False
        self._context = rollout_context(setup, stops, on_wait, self._idle.append)

    def collect(self, step: int) -> Collected:
        """Complete the next batch of prompts; under dynamic sampling, useless groups are drawn again, within bounds.

        Args:
            step: 1 for the first; names the random numbers with the run's seed.

        Raises:
            StopRequested: the user asked to stop.
        """
        trainer, started = self.config.trainer, time.perf_counter()
        draws = self.setup.data.mixture.draw(trainer.prompts_per_step)
        groups = [group for draw in draws for group in groups_of(self.setup, draw)]
        rollouts = self._complete_and_update(groups, step)
        metrics = self._resample(groups, rollouts, step) if trainer.dynamic_sampling else {}
        greedy = None
        if self._greedy:
            completed = self._complete(groups, step, replace(self._sampling, temperature=0.0), 1)
            greedy = self.rewards(completed, groups).repeat_interleave(trainer.num_generations)
        rewards = self.rewards(rollouts, groups)
        rest(self.setup.engine)
        generate_s = time.perf_counter() - started
        metrics |= self._tool_metrics(rollouts, generate_s)
        return Collected(groups, rollouts, rewards, greedy, metrics, started, generate_s)

    def rewards(self, rollouts: Sequence[Rollout], groups: Sequence[PromptGroup]) -> Tensor:
        """Rewards [N] float64, NaN where the score abstained; the soft overlong penalty is added where configured."""
        values = []
        for rollout in rollouts:
            value = math.nan if rollout.score.value is None else rollout.score.value
            task = groups[rollout.group].draw.task.task
            values.append(value + length_penalty(self.config.trainer, task, rollout))
        return torch.tensor(values, dtype=torch.float64)

    def _tool_metrics(self, rollouts: Sequence[Rollout], generate_s: float) -> dict[str, float]:
        """How much of the time sampler and tool workers had nothing to do, under the schedule `arrival`."""
        if not self._idle:
            return {}
        metrics = {"tools/sampler_idle": sum(self._idle) / generate_s}
        self._idle.clear()
        episodes = Counter(rollout.spec for rollout in rollouts if TOOLS in rollout.score.seconds)
        limit = self.config.scoring.tool_workers * self.ranks.size
        if workers := sum(min(limit, count) for count in episodes.values()):
            ran = sum(tool_seconds(rollout.score for rollout in rollouts))
            metrics["tools/workers_idle"] = max(0.0, 1 - ran / (workers * generate_s))  # async ones share a worker
        return metrics

    def _resample(self, groups: list[PromptGroup], rollouts: list[Rollout], step: int) -> dict[str, float]:
        """Replace, in place, the groups whose rewards hardly differ; what is left after the last attempt stays."""
        trainer, size = self.config.trainer, self.config.trainer.num_generations
        rejected = attempts = 0
        useless = self._useless_groups(rollouts, groups)
        while useless and attempts < trainer.dynamic_sampling_attempts:
            attempts += 1
            rejected += len(useless)
            draws = self.setup.data.mixture.replace([groups[group].draw for group in useless])
            new_groups = [group for draw in draws for group in groups_of(self.setup, draw)]
            new_rollouts = self._complete_and_update(new_groups, step)
            for index, number in enumerate(useless):
                groups[number] = new_groups[index]
                rollouts[number * size : (number + 1) * size] = [
                    replace(rollout, group=number) for rollout in new_rollouts[index * size : (index + 1) * size]
                ]
            useless = self._useless_groups(rollouts, groups)
        return {
            "dynamic_sampling/attempts": float(attempts),
            "dynamic_sampling/rejected": float(rejected),
            "dynamic_sampling/unfilled": float(len(useless)),
        }

    def _useless_groups(self, rollouts: Sequence[Rollout], groups: Sequence[PromptGroup]) -> list[int]:
        trainer = self.config.trainer
        numbers = torch.tensor([rollout.group for rollout in rollouts])
        spread = group_std(self.rewards(rollouts, groups), numbers, ddof=0).view(-1, trainer.num_generations)[:, 0]
        return [int(group) for group in (spread <= trainer.dynamic_sampling_min_std).nonzero()]

    def _complete_and_update(self, groups: Sequence[PromptGroup], step: int) -> list[Rollout]:
        """Complete prompts, and update the curriculum with what was solved, in prompt order, before the next draw."""
        size = self.config.trainer.num_generations
        rollouts = self._complete(groups, step, self._sampling, size)
        for number, group in enumerate(groups):
            scores = [rollout.score for rollout in rollouts[number * size : (number + 1) * size]]
            solved = [float(score.solved) for score in scores if not score.abstained]
            if solved:
                self.setup.data.mixture.update(group.draw, sum(solved) / len(solved))
        return rollouts

    def _complete(
        self, groups: Sequence[PromptGroup], step: int, sampling: Sampling, generations: int
    ) -> list[Rollout]:
        """Complete every prompt: this rank its share, then each rank gets the rollouts of all."""
        draws = len({group.draw.position for group in groups})  # the sides of an episode stay together
        share, sides = self.ranks.share(draws), len(groups) // draws
        first, policy = share.start * sides, self.setup.policy
        own = groups[first : share.stop * sides]

        def sample() -> list[Rollout]:
            whole = policy.whole(self.config.engine.gather_weights)
            with policy.in_step(EngineError, UserError), whole, policy.precision():
                rollouts = sample_rollouts(own, self._context, sampling, generations, step)
            if generations == 1:
                return rollouts
            return with_group_rewards(rollouts, own, self._context.scoring, self._context.wait)

        if self.ranks.size == 1:
            return sample()
        parts = self.ranks.together(lambda: packed(sample(), first))
        return [rollout for data in parts for rollout in unpacked(data, groups)]
