"""One generated batch -> optimizer steps: exact global denominators, whatever the micro-batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from grpo_core import registry
from grpo_core.algorithms.losses import Aggregation, clip_fractions, importance_ratio, token_weights
from grpo_core.algorithms.packing import Pack, can_pack, pair_cost
from grpo_core.config import TrainerConfig
from grpo_core.errors import NonFiniteError, UserError
from grpo_core.policy.policy import Policy
from grpo_core.training.batch import MicroBatch, TrainBatch, micro_batches

MAX_SKIPPED_IN_A_ROW = 10
"""Optimizer steps skipped one after another before the run fails: the weights are then beyond repair."""


@dataclass(slots=True)
class _Totals:
    """What is summed over the micro-batches of one optimizer step."""

    loss: float = 0.0
    kl: float = 0.0
    tokens: float = 0.0
    ratio: float = 0.0
    clip_low: float = 0.0
    clip_high: float = 0.0
    mismatch: float = 0.0


class Updater:
    """Turns batches into optimizer steps.

    Args:
        policy: The model.
        config: The algorithm.
        total_steps: Generated batches planned, for the schedule.

    Attributes:
        updates: Optimizer steps taken so far.
        skipped: Optimizer steps skipped because loss or gradient was not finite.
    """

    def __init__(self, policy: Policy, config: TrainerConfig, total_steps: int) -> None:
        self.policy, self.config = policy, config
        self._loss = registry.resolve("loss", config.loss_type)
        if not hasattr(self._loss, "aggregation"):
            raise UserError(
                f"trainer.loss_type={config.loss_type}: the function does not say how tokens are aggregated; "
                "mark it with grpo_core.algorithms.losses.aggregated."
            )
        self._aggregation: Aggregation = self._loss.aggregation
        self._loss_args = self._arguments_of_loss()
        self._kl = registry.resolve("kl", config.kl) if config.beta else None
        self._kl_args = registry.validate_arguments("kl", config.kl, config.kl_args, "trainer.kl_args")
        self.optimizer = torch.optim.AdamW(
            policy.parameters(),
            lr=config.learning_rate,
            betas=(config.adam_beta1, config.adam_beta2),
            eps=config.adam_epsilon,
            weight_decay=config.weight_decay,
        )
        total_updates = total_steps * config.num_iterations * config.steps_per_generation
        self._pair_cost = pair_cost(policy.model) if can_pack(policy.model) else math.inf
        self._factor = self._schedule(total_updates)
        self.scaler = torch.amp.GradScaler(policy.device.type, enabled=policy.autocast is torch.float16)
        self.updates = self.skipped = self._skipped_in_a_row = 0

    @property
    def on_policy(self) -> bool:
        """Whether each batch is used for one update, so that the ratio is 1 and the old log-prob pass is skipped."""
        return self.config.num_iterations == 1 and self.config.steps_per_generation == 1

    def update(self, batch: TrainBatch) -> dict[str, float]:
        """Take the optimizer steps of one generated batch.

        Args:
            batch: Its rows, group by group, with advantages.

        Returns:
            Metrics, averaged over the optimizer steps.

        Raises:
            NonFiniteError: too many steps in a row had to be skipped.
        """
        config = self.config
        self.policy.model.train()
        if not self.on_policy:
            batch = replace(batch, old_logprobs=self._frozen_logprobs(self.policy, batch))
        if config.beta:
            with self.policy.reference() as reference:
                batch = replace(batch, ref_logprobs=self._frozen_logprobs(reference, batch))
        taken = []
        for _ in range(config.num_iterations):
            for rows in torch.arange(len(batch)).chunk(config.steps_per_generation):
                taken.append(self._step(batch.rows(rows)))
        return {name: sum(metrics[name] for metrics in taken) / len(taken) for name in taken[0]}

    def _step(self, part: TrainBatch) -> dict[str, float]:
        config = self.config
        part = replace(
            part,
            weights=token_weights(part.mask, self._aggregation, max_completion_length=config.max_completion_length),
        )
        totals = _Totals()
        # A row without advantage has no gradient, unless a penalty has: it is skipped in compute, not in denominators.
        teaches = part.mask.any(dim=1) & ((part.advantages != 0) | bool(config.beta))
        chosen = part.rows(teaches.nonzero()[:, 0])
        finite = True
        for micro in self._micro_batches(chosen):
            loss = self._micro_loss(chosen.rows(micro.rows).to(self.policy.device), micro.packs, totals)
            if not bool(torch.isfinite(loss)):
                finite = False
                break
            self.scaler.scale(loss).backward()
        learning_rate = config.learning_rate * self._factor(self.updates)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        grad_norm = self._apply(finite)
        count = max(1.0, totals.tokens)
        metrics = {
            "loss": totals.loss,
            "grad_norm": grad_norm,
            "learning_rate": learning_rate,
            "ratio_mean": totals.ratio / count if totals.tokens else 1.0,
            "clip_ratio/low": totals.clip_low / count,
            "clip_ratio/high": totals.clip_high / count,
            "sampler_mismatch": totals.mismatch / count,
        }
        return {**metrics, "kl": totals.kl / count} if config.beta else metrics

    def _micro_loss(self, micro: TrainBatch, packs: Sequence[Pack], totals: _Totals) -> Tensor:
        config = self.config
        logp = self.policy.logprobs(
            micro.input_ids, micro.prompt_lens, micro.completion_lens, packs, temperature=config.temperature
        )
        old = logp.detach() if micro.old_logprobs is None else micro.old_logprobs
        # Wide from here on: [B, T] numbers are few, and a sum of thousands must not lose the small ones.
        logp, old = logp.to(self.policy.wide), old.to(self.policy.wide)
        objective = self._loss(logp, old, micro.advantages, **self._loss_args)
        if self._kl is not None:
            assert micro.ref_logprobs is not None
            penalty = self._kl(logp, micro.ref_logprobs.double(), **self._kl_args)
            # ρ·estimator has the gradient of KL(π‖π_ref) for k3, also when the sample is old (algorithms.md, "KL").
            objective = objective + config.beta * importance_ratio(logp, old) * penalty
            totals.kl += float(penalty.detach().where(micro.mask, 0.0).sum())
        loss: Tensor = (objective * micro.weights).where(micro.mask, 0.0).sum()
        with torch.no_grad():
            low, high = clip_fractions(
                logp, old, micro.advantages, micro.mask,
                epsilon=config.epsilon, epsilon_high=config.upper_epsilon,
            )  # fmt: skip
            totals.loss += float(loss)
            totals.tokens += float(micro.mask.sum())
            totals.ratio += float(importance_ratio(logp, old).where(micro.mask, 0.0).sum())
            totals.clip_low, totals.clip_high = totals.clip_low + low, totals.clip_high + high
            gap = (logp - micro.sampler_logprobs.to(logp)).abs()
            totals.mismatch += float(gap.where(micro.mask, 0.0).sum())
        return loss

    def _apply(self, finite: bool) -> float:
        parameters = self.policy.parameters()
        grad_norm = 0.0
        if any(parameter.grad is not None for parameter in parameters):
            self.scaler.unscale_(self.optimizer)
            grad_norm = float(torch.nn.utils.clip_grad_norm_(parameters, self.config.max_grad_norm))
            finite = finite and math.isfinite(grad_norm)
            if finite:
                self.scaler.step(self.optimizer)
            self.scaler.update()
        self._skipped_in_a_row = 0 if finite else self._skipped_in_a_row + 1
        self.skipped += not finite
        self.optimizer.zero_grad(set_to_none=True)
        self.updates += 1
        if self._skipped_in_a_row >= MAX_SKIPPED_IN_A_ROW:
            raise NonFiniteError(
                f"loss or gradient was not finite in {MAX_SKIPPED_IN_A_ROW} optimizer steps one after another; "
                f"lower trainer.learning_rate ({self.config.learning_rate:g}) or use precision=float32."
            )
        return grad_norm

    def _frozen_logprobs(self, policy: Policy, batch: TrainBatch) -> Tensor:
        logprobs = torch.zeros(batch.mask.shape, dtype=self.policy.wide)
        with torch.no_grad():
            for micro in self._micro_batches(batch):
                rows = batch.rows(micro.rows).to(policy.device)
                some = policy.logprobs(
                    rows.input_ids,
                    rows.prompt_lens,
                    rows.completion_lens,
                    micro.packs,
                    temperature=self.config.temperature,
                )
                logprobs[micro.rows, : some.shape[1]] = some.to(self.policy.wide).cpu()
        return logprobs

    def _micro_batches(self, batch: TrainBatch) -> Iterator[MicroBatch]:
        return micro_batches(
            batch,
            pair_cost=self._pair_cost,
            max_rows=self.config.micro_batch_size,
            max_tokens=self.config.micro_batch_tokens,
        )

    def _arguments_of_loss(self) -> dict[str, Any]:
        config = self.config
        shared = {"epsilon": config.epsilon}
        if config.epsilon_high is not None:
            shared["epsilon_high"] = config.epsilon_high
        own = registry.arguments("loss", config.loss_type)
        given = {**{name: value for name, value in shared.items() if name in own}, **config.loss_args}
        return registry.validate_arguments("loss", config.loss_type, given, "trainer.loss_args")

    def _schedule(self, total_updates: int) -> Callable[[int], float]:
        config = self.config
        schedule = registry.resolve("schedule", config.lr_scheduler_type)
        warmup = config.warmup_steps
        if config.warmup_ratio is not None:
            warmup = round(config.warmup_ratio * total_updates)
        own = registry.arguments("schedule", config.lr_scheduler_type)
        options = {"warmup_steps": warmup} if "warmup_steps" in own else {}
        return lambda step: float(schedule(step, total_updates, **options))
