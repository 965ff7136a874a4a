"""The gradient of the loss of one optimizer step: exact global denominators, whatever the micro-batches and ranks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import torch

from grpo_core.algorithms.aggregation import token_weights
from grpo_core.training.algorithm import Algorithm
from grpo_core.training.batch import TrainBatch
from grpo_core.training.forward import ForwardPasses
from grpo_core.training.objective import Objective, PenaltyCoefficients
from grpo_core.training.optimizer import PolicyOptimizer
from grpo_core.training.statistics import UpdateStatistics


class LossGradient:
    """Adds the gradient of the loss to the parameters.

    Args:
        algorithm: The loss and its settings.
        forward: Forward passes of the policy.
        optimizer: The parameters, and the scale of the loss.
        max_turns: Turns that a rollout may have; with the length of one, the constant length of the loss.
    """

    def __init__(
        self, algorithm: Algorithm, forward: ForwardPasses, optimizer: PolicyOptimizer, max_turns: int
    ) -> None:
        self.forward, self.optimizer = forward, optimizer
        self._aggregation, self._max_turns = algorithm.aggregation, max_turns
        self._zero_without_advantage = algorithm.loss.facts.zero_without_advantage
        self._objective = Objective(forward.policy, algorithm, forward)

    def weighted(self, part: TrainBatch) -> TrainBatch:
        """The rows of one optimizer step with their tokens' weights: the denominator is counted over all of them."""
        config = self.forward.config
        weights = token_weights(
            part.mask,
            self._aggregation,
            max_completion_length=self._max_turns * config.max_completion_length,
            groups=part.groups,
            rollouts=part.rollouts,
            count_empty=config.count_empty_rows,
        )
        return replace(part, weights=weights)

    def add(
        self,
        part: TrainBatch,
        coefficients: PenaltyCoefficients,
        statistics: UpdateStatistics,
        measuring: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> bool:
        """Add the gradient of some weighted rows, summed over the ranks, to parameters that have none.

        Args:
            part: The rows, the same on every rank.
            coefficients: Weights of the penalties.
            statistics: Empty; receives what this rank measures on the way.
            measuring: Context of each backward pass.

        Returns:
            Whether the loss of this rank's rows is finite; where it is not, the gradient has no meaning.
        """
        chosen = self._with_gradient(part, coefficients)

        def undo() -> None:
            statistics.reset()
            self.optimizer.drop_gradients()

        is_finite = self.forward.budget.until_it_fits(
            lambda: self._add_own(chosen, coefficients, statistics, measuring), undo
        )
        self.forward.ranks.sum_gradients(self.optimizer.parameters)
        return is_finite

    def _add_own(
        self,
        chosen: TrainBatch,
        coefficients: PenaltyCoefficients,
        statistics: UpdateStatistics,
        measuring: Callable[[], AbstractContextManager[None]],
    ) -> bool:
        """The same for the chosen rows of this rank, without the sum."""
        policy, is_finite = self.forward.policy, True
        with policy.in_step():
            for micro, rows in self.forward.passes(chosen):
                loss = self._objective(rows, micro.packs, coefficients, statistics)
                if not bool(torch.isfinite(loss)):
                    is_finite = False
                    if policy.shards is None:  # else the others count on this rank in their backward pass
                        break
                with measuring():
                    self.optimizer.backward(loss)
        return is_finite

    def _with_gradient(self, part: TrainBatch, coefficients: PenaltyCoefficients) -> TrainBatch:
        # A row without gradient is skipped in compute, not in denominators.
        needs_all = (
            not self._zero_without_advantage
            or self.forward.kl_in_loss
            or coefficients.entropy != 0
            or self.forward.policy.value_head is not None
        )
        advantages = part.advantages if part.advantages.dim() == 2 else part.advantages[:, None]
        own = self.forward.own_rows(part)
        teaches = part.mask.any(dim=1) & ((advantages != 0).any(dim=1) | needs_all)
        return part.rows(own[teaches[own]])
