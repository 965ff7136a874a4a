"""The loss of an optimizer step, policy loss + β·KL − c·entropy + value loss, and its gradient.

Each term has the same weights of tokens, which hold the denominators of the whole step: micro-batches and ranks add up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from grpo_core.algorithms.aggregation import token_weights, weighted_sum
from grpo_core.algorithms.corrections import off_policy_mask, rollout_weights
from grpo_core.algorithms.diagnostics import clip_fractions
from grpo_core.algorithms.kl import k1, k3, kl_penalty, ratio_factor
from grpo_core.algorithms.losses import policy_loss, value_loss
from grpo_core.algorithms.packing import Pack
from grpo_core.algorithms.sequence_losses import sequence_log_ratio
from grpo_core.training.algorithm import Algorithm
from grpo_core.training.batch import MicroBatch, TokenBatch, TrainBatch
from grpo_core.training.forward import ForwardPasses
from grpo_core.training.optimizer import PolicyOptimizer
from grpo_core.training.statistics import UpdateStatistics


@dataclass(frozen=True, slots=True)
class PenaltyCoefficients:
    """Weights of the penalties in one update.

    Attributes:
        beta: Weight of the KL penalty in the loss.
        entropy: Weight of the entropy bonus.
    """

    beta: float
    entropy: float


class Objective:
    """Computes losses of micro-batches, and gradients of optimizer steps.

    Args:
        algorithm: The loss, the KL estimator and their settings.
        forward: Forward passes of the policy.
        max_turns: Turns that a rollout may have; with the length of one, the constant length of the loss.
    """

    def __init__(self, algorithm: Algorithm, forward: ForwardPasses, max_turns: int) -> None:
        self.forward = forward
        self._algorithm, self._max_turns = algorithm, max_turns

    def weights(self, part: TokenBatch) -> Tensor:
        """Weights [B, T] of the tokens of one optimizer step: the denominator is counted over all of its rows."""
        config = self._algorithm.config
        return token_weights(
            part.mask,
            self._algorithm.aggregation,
            max_completion_length=self._max_turns * config.max_completion_length,
            groups=part.groups,
            rollouts=part.rollouts,
            count_empty=config.count_empty_rows,
        )

    def add_gradient(
        self,
        part: TrainBatch,
        coefficients: PenaltyCoefficients,
        statistics: UpdateStatistics,
        optimizer: PolicyOptimizer,
        measuring: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> bool:
        """Add the gradient of some rows, summed over the ranks, to parameters that have none.

        Args:
            part: The rows, the same on every rank.
            coefficients: Weights of the penalties.
            statistics: Empty; receives what this rank measures on the way.
            optimizer: Its parameters receive the gradient.
            measuring: Context of each backward pass.

        Returns:
            Whether the loss of this rank's rows is finite; where it is not, the gradient has no meaning.
        """
        are_finite: list[bool] = []

        def add(micro: MicroBatch, rows: TrainBatch) -> None:
            loss = self.loss(rows, micro.packs, coefficients, statistics)
            are_finite.append(bool(torch.isfinite(loss)))
            with measuring():
                optimizer.backward(loss)

        def undo() -> None:
            are_finite.clear()
            statistics.reset()
            optimizer.drop_gradients()

        # A row without gradient is skipped in compute, not in denominators.
        own = self.forward.own_rows(part)
        self.forward.each(part.rows(own[self._teaches(part, coefficients)[own]]), add, undo)
        self.forward.ranks.sum_gradients(optimizer.parameters)
        return all(are_finite)

    def loss(
        self, rows: TrainBatch, packs: Sequence[Pack], coefficients: PenaltyCoefficients, statistics: UpdateStatistics
    ) -> Tensor:
        """The loss of a micro-batch, to be summed over the micro-batches of an update.

        Args:
            rows: Its rows, on the policy's device.
            packs: The rows in sequences that share a prompt.
            coefficients: Weights of the penalties.
            statistics: Receives what is measured on the way.
        """
        algorithm, placement, wide = self._algorithm, self._algorithm.kl_placement, self.forward.policy.wide
        mask, weights, snapshot = rows.mask, rows.weights, rows.snapshot
        outputs = self.forward.outputs(
            rows, packs, with_entropy=True, with_full_kl=placement.in_loss and placement.is_full
        )
        logp, entropy, kl, values = outputs["logp"], outputs["entropy"], outputs.get("kl"), outputs.get("values")
        old = logp.detach() if snapshot.old_logprobs is None else snapshot.old_logprobs.to(wide)
        sampler = rows.sampler_logprobs.to(wide)
        correction = self._correction(rows, old, logp, sampler)
        loss: Tensor = policy_loss(
            algorithm.loss.function, logp, old, rows.advantages, mask, weights,
            correction=correction, **algorithm.loss.arguments,
        )  # fmt: skip
        totals = {"loss": 0.0, "loss/policy": float(loss.detach())}
        per_token = {"entropy": entropy, "sampler_mismatch": (old - sampler).abs()}
        if placement.in_loss:
            if kl is None:
                assert snapshot.ref_logprobs is not None
                ref_logp, now = snapshot.ref_logprobs.to(wide), logp.detach()
                kl = kl_penalty(algorithm.kl.function, logp, ref_logp, mask, **algorithm.kl.arguments)
                per_token |= {"kl": kl, "kl/k1": k1(now, ref_logp), "kl/k3": k3(now, ref_logp)}
            else:
                per_token["kl"] = kl
            if placement.by_ratio:
                is_constant = bool(algorithm.kl.arguments.get("straight_through"))
                kl = ratio_factor(logp, old, is_constant=is_constant) * kl
            loss = loss + coefficients.beta * weighted_sum(kl, mask, weights)
        if coefficients.entropy:
            loss = loss - coefficients.entropy * weighted_sum(entropy, mask, weights)
        if values is not None:
            assert snapshot.old_values is not None and rows.returns is not None
            errors = value_loss(values, snapshot.old_values, rows.returns, mask, clip=algorithm.config.value_clip)
            own_loss = weighted_sum(errors, mask, weights)
            totals["loss/value"] = float(own_loss.detach())
            loss = loss + algorithm.config.value_loss_coef * own_loss
        if correction is not None:
            per_token["rollout_weight"] = correction
        totals["loss"] = float(loss.detach())
        statistics.add(mask, logp - old, totals | self._clipped(rows, logp.detach(), old), per_token)
        return loss

    def _teaches(self, part: TrainBatch, coefficients: PenaltyCoefficients) -> Tensor:
        """[B] whether a row has a gradient."""
        has_tokens = part.mask.any(dim=1)
        if (
            not self._algorithm.loss.facts.zero_without_advantage
            or self._algorithm.kl_placement.in_loss
            or coefficients.entropy != 0
            or self.forward.policy.value_head is not None
        ):
            return has_tokens
        advantages = part.advantages if part.advantages.dim() == 2 else part.advantages[:, None]
        return has_tokens & (advantages != 0).any(dim=1)

    def _correction(self, rows: TrainBatch, old: Tensor, logp: Tensor, sampler: Tensor) -> Tensor | None:
        """Constant factors [B, T] of the policy loss: weights against the sampler; rows and tokens left out."""
        config, restricted = self._algorithm.config, rows.snapshot.policy_mask
        factors = [] if restricted is None else [restricted.to(old.dtype)]
        if config.rollout_correction != "none":
            weights = rollout_weights(
                old,
                sampler,
                rows.mask,
                mode=config.rollout_correction,
                maximum=config.rollout_correction_max,
                minimum=config.rollout_correction_min,
            )
            factors.append(weights)
        if config.off_policy_mask_threshold is not None:
            threshold = config.off_policy_mask_threshold
            kept = off_policy_mask(rows.advantages, logp.detach(), sampler, rows.mask, threshold=threshold)
            factors.append(kept if kept.dim() == 2 else kept[:, None].expand_as(old))
        return reduce(torch.mul, factors) if factors else None

    def _clipped(self, rows: TrainBatch, logp: Tensor, old: Tensor) -> dict[str, float]:
        """Tokens whose ratio, or that of their completion, the loss clips; empty where it clips none."""
        clips, arguments = self._algorithm.loss.facts.clips, self._algorithm.loss.arguments
        if clips is None or arguments.get("epsilon") is None:
            return {}
        if clips != "token":
            logp = old + sequence_log_ratio(logp, old, rows.mask, mean=clips == "sequence_mean")
        low, high = arguments["epsilon"], arguments.get("epsilon_high")
        counts = clip_fractions(logp, old, rows.advantages, rows.mask, epsilon=low, epsilon_high=high)
        return {f"clip_ratio/{name}": float(count) for name, count in counts._asdict().items()}
