"""Rewards -> advantages: the KL taken off the reward, the baseline with its inputs, the scaling."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from grpo_core.algorithms.advantages.normalised import scale_advantages
from grpo_core.algorithms.advantages.per_token import gae, token_rewards
from grpo_core.algorithms.masking import masked_sum
from grpo_core.rollouts.rollout import Rollout
from grpo_core.task.bound import BoundTask
from grpo_core.training.algorithm import Algorithm
from grpo_core.training.batch import TrainBatch


class AdvantageEstimator:
    """Computes the advantages of a batch with the configured baseline.

    Args:
        algorithm: The baseline and its settings.
        tasks: Tasks by label; their rewards' weights are those of baselines that see every reward function.

    Attributes:
        state: Running values of the baseline, as JSON.
        metrics: How two baselines compare on the last batch, where it has roles; else empty.
    """

    def __init__(self, algorithm: Algorithm, tasks: Mapping[str, BoundTask]) -> None:
        self.config, self._baseline = algorithm.config, algorithm.baseline
        self._arguments = dict(self._baseline.arguments)
        if "values" in self._baseline.provided:  # what is compared with values is discounted as their targets are
            self._arguments |= {"gamma": self.config.gae_gamma, "lam": self._lam}
        self._part_weights = {
            part.name: part.weight for task in tasks.values() for part in task.rewards if part.is_criterion
        }
        self.state: dict[str, float] = {}
        self.metrics: dict[str, float] = {}

    @property
    def needs_greedy(self) -> bool:
        """Whether every prompt needs a greedy completion, whose reward is the baseline (ReMax)."""
        return "greedy_rewards" in self._baseline.provided

    def __call__(
        self,
        batch: TrainBatch,
        rollouts: Sequence[Rollout],
        rewards: Tensor,
        labels: Sequence[str],
        *,
        beta: float,
        greedy_rewards: Tensor | None = None,
    ) -> TrainBatch:
        """Fill in advantages, and the returns that a value head learns.

        Args:
            batch: The rollouts as tensors, after `ForwardPasses.freeze`.
            rollouts: The rollouts, in the batch's order.
            rewards: [N] float64, NaN where abstained.
            labels: Task label of each rollout.
            beta: Weight of the KL that is taken off the reward; 0 where it is part of the loss.
            greedy_rewards: [N] reward of the greedy completion of each rollout's prompt, where the baseline needs it.
        """
        penalties = None if batch.token_kl is None or not beta else beta * batch.token_kl.double()
        per_token = self._baseline.facts.per_token
        owners = torch.arange(len(batch)) if batch.rollouts is None else batch.rollouts
        groups = torch.tensor([rollout.group for rollout in rollouts])
        if per_token:  # each row by itself, with all that its rollout earned
            rewards, groups = rewards[owners], batch.groups
        elif penalties is not None:
            spent = masked_sum(penalties, batch.mask, dim=1)
            rewards = rewards.index_add(0, owners, spent, alpha=-1)
        inputs = self._inputs(batch, rollouts, labels, penalties, greedy_rewards)
        provided = {name: inputs[name]() for name in sorted(self._baseline.provided)}
        advantages: Tensor = self._baseline.function(rewards, groups, **provided, **self._arguments)
        scored, self.metrics = ~rewards.isnan(), {}
        if "roles" in self._baseline.provided and any(rollout.role for rollout in rollouts) and scored.any():
            pooled = self._baseline.function(rewards, groups, **{**provided, "roles": labels}, **self._arguments)
            self.metrics = {
                "baseline/roles_mse": float(advantages[scored].square().mean()),
                "baseline/pooled_mse": float(pooled[scored].square().mean()),
            }
        scale = self.config.scale_rewards
        assert scale is not None, "the configuration is resolved"
        if not per_token:
            advantages = scale_advantages(
                advantages,
                rewards,
                groups,
                scale,
                epsilon=self.config.std_epsilon,
                ddof=self.config.std_ddof,
            )[owners]
            rewards = rewards[owners]
        if batch.turns_left is not None and self.config.turn_gamma < 1:
            by_token = advantages if advantages.dim() == 2 else advantages[:, None]
            advantages = by_token * self.config.turn_gamma ** batch.turns_left.double()
        return replace(batch, advantages=advantages, returns=self._returns(batch, rewards, penalties))

    def _inputs(
        self,
        batch: TrainBatch,
        rollouts: Sequence[Rollout],
        labels: Sequence[str],
        penalties: Tensor | None,
        greedy_rewards: Tensor | None,
    ) -> dict[str, Any]:
        """Inputs that a baseline may ask for by name, each made only when it does."""
        zeros = torch.zeros(batch.mask.shape, dtype=torch.float64)
        return {
            "keys": lambda: list(labels),
            "roles": lambda: [
                f"{label}/{rollout.role}" if rollout.role else label
                for label, rollout in zip(labels, rollouts, strict=True)
            ],
            "state": lambda: self.state,
            "lengths": lambda: torch.tensor([rollout.n_tokens for rollout in rollouts]),
            "greedy_rewards": lambda: greedy_rewards,
            "reward_parts": lambda: self._parts(rollouts),
            "part_weights": lambda: torch.tensor(list(self._part_weights.values()), dtype=torch.float64),
            "mask": lambda: batch.mask,
            "token_penalties": lambda: zeros if penalties is None else penalties,
            "values": lambda: batch.old_values,
        }

    @property
    def _lam(self) -> float:
        return self.config.gae_lambda if self.config.use_gae else 1.0

    def _parts(self, rollouts: Sequence[Rollout]) -> Tensor:
        """[N, K] raw parts; NaN where a completion was not scored or its task has no such reward function."""
        rows = []
        for rollout in rollouts:
            assert rollout.score is not None
            parts = {} if rollout.score.abstained else rollout.score.parts
            rows.append([parts.get(name, math.nan) for name in self._part_weights])
        return torch.tensor(rows, dtype=torch.float64)

    def _returns(self, batch: TrainBatch, rewards: Tensor, penalties: Tensor | None) -> Tensor | None:
        if batch.old_values is None:
            return None
        scores = rewards.where(~rewards.isnan(), 0.0)
        earned = token_rewards(scores, batch.mask, penalties)
        _, returns = gae(earned, batch.old_values.double(), batch.mask, gamma=self.config.gae_gamma, lam=self._lam)
        # A completion that could not be scored has no return: its own values teach it nothing.
        return torch.where(rewards.isnan()[:, None], batch.old_values.double(), returns)
