"""The loss of one micro-batch: policy loss + β·KL − c·entropy + value loss, with the same weights of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from grpo_core.algorithms.aggregation import weighted_sum
from grpo_core.algorithms.causal_lm import evaluating
from grpo_core.algorithms.corrections import off_policy_mask, rollout_weights
from grpo_core.algorithms.kl import kl_penalty, ratio_factor
from grpo_core.algorithms.losses import policy_loss
from grpo_core.algorithms.packing import Pack
from grpo_core.algorithms.value_loss import value_loss
from grpo_core.policy.policy import Policy
from grpo_core.training.algorithm import Algorithm
from grpo_core.training.batch import TrainBatch
from grpo_core.training.forward import ForwardPasses
from grpo_core.training.statistics import ClipRange, MicroStatistics, UpdateStatistics


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
    """Computes losses of micro-batches.

    Args:
        policy: The model.
        algorithm: The loss, the KL estimator and their settings.
        forward: Says where the KL penalty goes.

    Attributes:
        clip: Where the loss clips its ratio, if it does.
    """

    def __init__(self, policy: Policy, algorithm: Algorithm, forward: ForwardPasses) -> None:
        self.policy, self.config, self.forward = policy, algorithm.config, forward
        self._loss, self._kl = algorithm.loss, algorithm.kl
        epsilon, clips = self._loss.arguments.get("epsilon"), self._loss.facts.clips
        self.clip = None
        if clips is not None and epsilon is not None:
            high = self._loss.arguments.get("epsilon_high")
            self.clip = ClipRange(clips, epsilon, epsilon if high is None else high)

    def __call__(
        self, micro: TrainBatch, packs: Sequence[Pack], coefficients: PenaltyCoefficients, statistics: UpdateStatistics
    ) -> Tensor:
        """The loss of a micro-batch, to be summed over the micro-batches of an update.

        Args:
            micro: Its rows, on the policy's device, with the weights of the whole update.
            packs: The rows in sequences that share a prompt.
            coefficients: Weights of the penalties.
            statistics: Receives what is measured on the way.
        """
        policy, temperature = self.policy, self.config.temperature
        lens = (micro.input_ids, micro.prompt_lens, micro.completion_lens)
        with policy.precision():
            ref_states = None
            if self.forward.kl_in_loss and self.config.kl == "full":
                # Without dropout, which is on in an update where the reference is the policy's own module.
                with policy.reference() as reference, evaluating(reference.model):
                    ref_states = reference.states(*lens, packs)
            states = policy.states(*lens, packs)
            logp, entropy = states.logprobs(temperature=temperature, with_entropy=True)
            kl = None
            if ref_states is not None:
                kl = states.full_kl(ref_states, temperature=temperature, **self._kl.arguments)
            values = None if policy.value_head is None else states.read(policy.value_head)
        assert entropy is not None
        # Wide from here on: [B, T] numbers are few, and a sum of thousands must not lose the small ones.
        logp, entropy = logp.to(policy.wide), entropy.to(policy.wide)
        old = logp.detach() if micro.old_logprobs is None else micro.old_logprobs.to(policy.wide)
        correction = self._correction(micro, old, logp)
        loss: Tensor = policy_loss(
            self._loss.function, logp, old, micro.advantages, micro.mask, micro.weights,
            correction=correction, **self._loss.arguments,
        )  # fmt: skip
        measured = MicroStatistics(mask=micro.mask, logp=logp.detach(), old_logp=old, entropy=entropy.detach())
        measured.policy_loss, measured.correction = float(loss.detach()), correction
        if self.forward.kl_in_loss:
            if kl is None:
                assert micro.ref_logprobs is not None
                ref_logp = micro.ref_logprobs.to(policy.wide)
                kl = kl_penalty(self._kl.function, logp, ref_logp, micro.mask, **self._kl.arguments)
                measured.ref_logp = ref_logp
            kl = kl.to(policy.wide)
            measured.kl = kl.detach()
            # ρ·k3 has the gradient of KL(π‖π_ref), also when the sample is old (algorithms.md, "KL").
            by_ratio = self.config.kl_placement == "ratio_loss" and self.config.kl != "full"
            is_constant = bool(self._kl.arguments.get("straight_through"))
            penalty = ratio_factor(logp, old, is_constant=is_constant) * kl if by_ratio else kl
            loss = loss + coefficients.beta * weighted_sum(penalty, micro.mask, micro.weights)
        if coefficients.entropy:
            loss = loss - coefficients.entropy * weighted_sum(entropy, micro.mask, micro.weights)
        if values is not None:
            own_loss = self._value_loss(values.to(policy.wide), micro)
            measured.value_loss = float(own_loss.detach())
            loss = loss + self.config.value_loss_coef * own_loss
        measured.loss = float(loss.detach())
        statistics.add(measured, micro, self.clip)
        return loss

    def _value_loss(self, values: Tensor, micro: TrainBatch) -> Tensor:
        assert micro.old_values is not None and micro.returns is not None
        per_token = value_loss(values, micro.old_values, micro.returns, micro.mask, clip=self.config.value_clip)
        return weighted_sum(per_token, micro.mask, micro.weights)

    def _correction(self, micro: TrainBatch, old: Tensor, logp: Tensor) -> Tensor | None:
        """Constant factors [B, T] of the policy loss: weights against the sampler; rows and tokens left out."""
        config = self.config
        factor = None if micro.policy_mask is None else micro.policy_mask.to(old.dtype)
        sampler = micro.sampler_logprobs.to(old.dtype)
        if config.rollout_correction != "none":
            weights = rollout_weights(
                old,
                sampler,
                micro.mask,
                mode=config.rollout_correction,
                maximum=config.rollout_correction_max,
                minimum=config.rollout_correction_min,
            )
            factor = weights if factor is None else factor * weights
        if config.off_policy_mask_threshold is not None:
            kept = off_policy_mask(
                micro.advantages, logp.detach(), sampler, micro.mask, threshold=config.off_policy_mask_threshold
            )
            kept = kept if kept.dim() == 2 else kept[:, None].expand_as(old)
            factor = kept if factor is None else factor * kept
        return factor
