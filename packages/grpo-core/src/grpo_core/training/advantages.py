"""Rewards -> advantages: the KL taken off the reward, the baseline with its inputs, the scaling."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from grpo_core.algorithms.advantages.normalised import scale_advantages
from grpo_core.algorithms.advantages.per_token import Episodes, gae, token_rewards
from grpo_core.algorithms.masking import masked_sum
from grpo_core.rollouts.rollout import Rollout
from grpo_core.training.algorithm import Algorithm
from grpo_core.training.batch import Snapshot, TokenBatch
from grpo_sdk.scoring.parts import PartColumns
from grpo_sdk.task.bound import BoundTask


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
        self._parts = PartColumns(tasks)
        self.state: dict[str, float] = {}
        self.metrics: dict[str, float] = {}

    @property
    def needs_greedy(self) -> bool:
        """Whether every prompt needs a greedy completion, whose reward is the baseline (ReMax)."""
        return "greedy_rewards" in self._baseline.provided

    def __call__(
        self,
        tokens: TokenBatch,
        snapshot: Snapshot,
        rollouts: Sequence[Rollout],
        rewards: Tensor,
        labels: Sequence[str],
        *,
        beta: float,
        greedy_rewards: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Compute advantages, and the returns that a value head learns.

        Args:
            tokens: The rollouts as tensors.
            snapshot: What the policy says of them before the update.
            rollouts: The rollouts, in the order of `tokens`.
            rewards: [N] float64, NaN where abstained.
            labels: Task label of each rollout.
            beta: Weight of the snapshot's KL, which is taken off the reward.
            greedy_rewards: [N] reward of the greedy completion of each rollout's prompt, where the baseline needs it.

        Returns:
            (advantages [B] or [B, T] float64, returns [B, T], or None without values).
        """
        penalties = None if snapshot.token_kl is None or not beta else beta * snapshot.token_kl.double()
        per_token = self._baseline.facts.per_token
        owners = tokens.rollouts
        groups = torch.tensor([rollout.group for rollout in rollouts])
        episodes = Episodes(owners, len(rollouts))
        if snapshot.last_values is not None:  # the length limit ended a rollout: the value of its last state instead
            is_cut = episodes.total(tokens.is_cut.double()).bool() & ~rewards.isnan()
            last = self.config.gae_gamma * episodes.total(snapshot.last_values.double())
            rewards = torch.where(is_cut, last, rewards)
        returns = None
        if snapshot.old_values is not None:
            returns = self._returns(tokens, snapshot.old_values, episodes, rewards, penalties)
        if penalties is not None and not per_token:
            spent = masked_sum(penalties, tokens.mask, dim=1)
            rewards = rewards.index_add(0, owners, spent, alpha=-1)
        inputs = self._inputs(tokens, snapshot, episodes, rollouts, labels, penalties, greedy_rewards)
        provided = {name: inputs[name]() for name in sorted(self._baseline.provided)}
        advantages: Tensor = self._baseline.function(rewards, groups, **provided, **self._arguments)
        scored, self.metrics = ~rewards.isnan(), {}
        if "roles" in self._baseline.provided and any(rollout.role for rollout in rollouts) and scored.any():
            tasks = [f"all roles of {label}" for label in labels]  # running means of their own
            pooled = self._baseline.function(rewards, groups, **{**provided, "roles": tasks}, **self._arguments)
            self.metrics = {
                "baseline/roles_mse": float(advantages[scored].square().mean()),
                "baseline/pooled_mse": float(pooled[scored].square().mean()),
            }
        if per_token:
            advantages = episodes.split(advantages)
        else:
            scale = self.config.scale_rewards
            assert scale is not None, "the configuration is resolved"
            advantages = scale_advantages(
                advantages,
                rewards,
                groups,
                scale,
                epsilon=self.config.std_epsilon,
                ddof=self.config.std_ddof,
            )[owners]
        if tokens.turns_left is not None and self.config.turn_gamma < 1:
            by_token = advantages if advantages.dim() == 2 else advantages[:, None]
            advantages = by_token * self.config.turn_gamma ** tokens.turns_left.double()
        return advantages, returns

    def _inputs(
        self,
        tokens: TokenBatch,
        snapshot: Snapshot,
        episodes: Episodes,
        rollouts: Sequence[Rollout],
        labels: Sequence[str],
        penalties: Tensor | None,
        greedy_rewards: Tensor | None,
    ) -> dict[str, Callable[[], Any]]:
        """Inputs that a baseline may ask for by name, each made only when it does."""
        values = snapshot.old_values
        spent = torch.zeros(tokens.mask.shape, dtype=torch.float64) if penalties is None else penalties
        return {
            "keys": lambda: list(labels),
            "roles": lambda: [
                f"{label}/{rollout.role}" if rollout.role else label
                for label, rollout in zip(labels, rollouts, strict=True)
            ],
            "state": lambda: self.state,
            "lengths": lambda: torch.tensor([rollout.n_tokens for rollout in rollouts]),
            "greedy_rewards": lambda: greedy_rewards,
            "reward_parts": lambda: _tensor(self._parts.values(labels, [rollout.score for rollout in rollouts])),
            "part_weights": lambda: _tensor(self._parts.weights(labels)),
            "mask": lambda: episodes.join(tokens.mask),
            "token_penalties": lambda: episodes.join(spent),
            "values": lambda: None if values is None else episodes.join(values),
        }

    @property
    def _lam(self) -> float:
        return self.config.gae_lambda if self.config.use_gae else 1.0

    def _returns(
        self, tokens: TokenBatch, old_values: Tensor, episodes: Episodes, rewards: Tensor, penalties: Tensor | None
    ) -> Tensor:
        """[B, T] what the value head learns to predict."""
        values, mask = episodes.join(old_values.double()), episodes.join(tokens.mask)
        earned = token_rewards(
            rewards.where(~rewards.isnan(), 0.0), mask, None if penalties is None else episodes.join(penalties)
        )
        _, returns = gae(earned, values, mask, gamma=self.config.gae_gamma, lam=self._lam)
        # A completion that could not be scored has no return: its own values teach it nothing.
        return episodes.split(torch.where(rewards.isnan()[:, None], values, returns))


def _tensor(rows: Sequence[Sequence[float]]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)
