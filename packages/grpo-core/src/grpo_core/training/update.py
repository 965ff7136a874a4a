"""One generated batch -> optimizer steps: exact global denominators, whatever the micro-batches."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from grpo_core.algorithms.aggregation import token_weights
from grpo_core.algorithms.masking import masked_mean
from grpo_core.errors import NonFiniteError
from grpo_core.policy.parts import whole
from grpo_core.policy.policy import Policy
from grpo_core.policy.ranks import Ranks
from grpo_core.training.algorithm import Algorithm
from grpo_core.training.batch import TrainBatch
from grpo_core.training.coefficients import Coefficient
from grpo_core.training.forward import ForwardPasses
from grpo_core.training.learning_rate import LearningRateSchedule
from grpo_core.training.objective import Objective, PenaltyCoefficients
from grpo_core.training.probes import Probes
from grpo_core.training.statistics import UpdateStatistics

MAX_SKIPPED_IN_A_ROW = 10
"""Optimizer steps skipped one after another before the run fails: the weights are then beyond repair."""

SMALLEST_LOSS_SCALE = 1.0
"""In float16 a gradient that overflows halves the scale of the loss: only from here on it is not the scale's doing."""


class Updater:
    """Turns batches into optimizer steps.

    Args:
        policy: The model.
        algorithm: The functions and settings of an update.
        total_steps: Generated batches that the schedule is laid over; None lays it over the time limit.
        probe_dir: Folder that receives what the entropy probe saves.
        ranks: The processes that take each step together.
        max_turns: Turns that a rollout may have; with the length of one, the constant length of the loss.

    Attributes:
        forward: Forward passes over whole batches.
        beta: Weight of the KL penalty.
        entropy_coef: Weight of the entropy bonus.
        probes: Measurements that leave the weights as they are.
        parameters: All that is trained, the value head included.
        optimizer: AdamW.
        schedule: Of the learning rate.
        updates: Optimizer steps taken so far.
        scaler: Scales the loss in float16, where small gradients would be 0: up after 2,000 good steps, down after each
            that overflows, which is skipped.
        skipped: Optimizer steps skipped because loss or gradient was not finite.
    """

    def __init__(
        self,
        policy: Policy,
        algorithm: Algorithm,
        total_steps: int | None,
        probe_dir: Path | None = None,
        ranks: Ranks | None = None,
        max_turns: int = 1,
    ) -> None:
        config = algorithm.config
        self.policy, self.config, self.ranks = policy, config, ranks or Ranks()
        self._max_turns = max_turns
        self.forward = ForwardPasses(policy, algorithm, self.ranks)
        self.beta = Coefficient(config.beta, algorithm.kl_controller, warmup_steps=config.kl_warmup_steps)
        self.entropy_coef = Coefficient(config.entropy_coef, algorithm.entropy_controller)
        self._aggregation = algorithm.aggregation
        self._objective = Objective(policy, algorithm, self.forward)
        groups: list[dict[str, Any]] = [{"params": policy.parameters(), "peak": config.learning_rate}]
        if policy.value_head is not None:
            peak = config.learning_rate if config.value_learning_rate is None else config.value_learning_rate
            groups.append({"params": list(policy.value_head.parameters()), "peak": peak})
        self.parameters: Sequence[torch.nn.Parameter] = [parameter for group in groups for parameter in group["params"]]
        self.optimizer: torch.optim.Optimizer = torch.optim.AdamW(
            groups,
            lr=config.learning_rate,
            betas=(config.adam_beta1, config.adam_beta2),
            eps=config.adam_epsilon,
            weight_decay=config.weight_decay,
        )
        self.schedule = LearningRateSchedule.of(
            algorithm, None if total_steps is None else total_steps * self.updates_per_batch
        )
        self._time_share = 0.0
        self.scaler = torch.amp.GradScaler(policy.device.type, enabled=policy.autocast is torch.float16)
        self.probes = Probes(self, probe_dir)
        self.updates = self.skipped = self._skipped_in_a_row = 0

    @property
    def updates_per_batch(self) -> int:
        """Optimizer steps that one generated batch gives."""
        return self.config.num_iterations * self.config.steps_per_generation

    def update(
        self, batch: TrainBatch, *, time_share: float = 0.0, taken: Sequence[dict[str, float]] = ()
    ) -> dict[str, float]:
        """Take the optimizer steps of one generated batch.

        Args:
            batch: Its rows, group by group, with advantages; `forward.freeze` was applied to it.
            time_share: Share of the run's time limit that has passed, for a learning rate that follows it.
            taken: Metrics of optimizer steps that were taken before a run of version 0.1 was stopped.

        Returns:
            Each metric's mean over the optimizer steps, and `update_s`.

        Raises:
            NonFiniteError: too many steps in a row had to be skipped.
        """
        started = time.perf_counter()
        self._time_share = time_share
        self.policy.model.train()
        groups = batch.groups.unique_consecutive().chunk(self.config.steps_per_generation)
        parts = [torch.isin(batch.groups, some).nonzero()[:, 0] for some in groups]
        steps = list(taken)
        while len(steps) < self.updates_per_batch:
            steps.append(self._step(batch.rows(parts[len(steps) % len(parts)])))
        return {
            **mean_metrics(steps),
            "update_s": time.perf_counter() - started,
            "skipped_updates": float(self.skipped),
        }

    def _step(self, part: TrainBatch) -> dict[str, float]:
        part = self.weighted(part)
        coefficients = self.coefficients()
        statistics = UpdateStatistics()
        chosen = self._with_gradient(part, coefficients)
        noise = self.probes.noise(part)
        probed = self.probes.before(part, coefficients, self.updates + 1)
        finite = True
        with self.policy.in_step():
            for micro in self.forward.micro_batches(chosen):
                rows = chosen.rows(micro.rows).to(self.policy.device)
                loss = self._objective(rows, micro.packs, coefficients, statistics)
                if not bool(torch.isfinite(loss)):
                    finite = False
                    if self.policy.shards is None:  # else the others count on this rank in their backward pass
                        break
                with noise.measuring():
                    self.backward(loss)
        learning_rate = self.learning_rate
        for group in self.optimizer.param_groups:
            group["lr"] = group["peak"] * self._factor
        scale = self.scaler.get_scale()
        self.ranks.sum_gradients(self.parameters)
        grad_norm, finite = self._apply(not self.ranks.any(not finite))
        statistics = statistics.of_all(self.ranks)
        measured = statistics.metrics()
        if finite:
            measured |= noise.result(grad_norm**2, scale) | self.probes.after(probed, grad_norm**2)
            measured_kl = statistics.controlled_kl
            if part.token_k3 is not None:
                measured_kl = float(masked_mean(part.token_k3, part.mask))
            self.beta.observe(measured_kl)
            self.entropy_coef.observe(statistics.mean_entropy)
        metrics = {
            "loss": 0.0,  # where no row has a gradient
            **measured,
            "grad_norm": grad_norm,
            "learning_rate": learning_rate,
        }
        if self.scaler.is_enabled():
            metrics["loss_scale"] = scale
        if self.config.beta:
            metrics["kl_coef"] = coefficients.beta
        if self.config.entropy_coef:
            metrics["entropy_coef"] = coefficients.entropy
        if not finite:  # a skipped step has no numbers where they are not finite: a checkpoint could not hold them
            metrics = {name: value for name, value in metrics.items() if math.isfinite(value)}
        return metrics

    @property
    def learning_rate(self) -> float:
        """Of the next optimizer step."""
        return self.config.learning_rate * self._factor

    @property
    def _factor(self) -> float:
        return self.schedule.factor(self.updates, self._time_share)

    def coefficients(self) -> PenaltyCoefficients:
        """Weights of the penalties in the next optimizer step."""
        return PenaltyCoefficients(self.beta.in_effect, self.entropy_coef.in_effect)

    def weighted(self, part: TrainBatch) -> TrainBatch:
        """The rows of one optimizer step with their tokens' weights: the denominator is counted over all of them."""
        config = self.config
        weights = token_weights(
            part.mask,
            self._aggregation,
            max_completion_length=self._max_turns * config.max_completion_length,
            groups=part.groups,
            rollouts=part.rollouts,
            count_empty=config.count_empty_rows,
        )
        return replace(part, weights=weights)

    def gradient(self, part: TrainBatch, coefficients: PenaltyCoefficients) -> None:
        """Add the gradient of the loss of some weighted rows to parameters without one, measuring nothing."""
        chosen = self._with_gradient(part, coefficients)
        with self.policy.in_step():
            for micro in self.forward.micro_batches(chosen):
                rows = chosen.rows(micro.rows).to(self.policy.device)
                self.backward(self._objective(rows, micro.packs, coefficients, UpdateStatistics()))
        self.ranks.sum_gradients(self.parameters)
        self.unscale()

    def backward(self, loss: torch.Tensor) -> None:
        """Add a loss's gradient to the parameters', scaled where the loss is."""
        self.scaler.scale(loss).backward()

    def unscale(self) -> None:
        """Take the scale out of gradients that no optimizer step follows."""
        scale = self.scaler.get_scale()
        for parameter in self.parameters if self.scaler.is_enabled() else ():
            if parameter.grad is not None:
                parameter.grad /= scale

    def _with_gradient(self, part: TrainBatch, coefficients: PenaltyCoefficients) -> TrainBatch:
        # A row without advantage has no gradient, unless a penalty has: it is skipped in compute, not in denominators.
        penalised = self.forward.kl_in_loss or coefficients.entropy != 0 or self.policy.value_head is not None
        advantages = part.advantages if part.advantages.dim() == 2 else part.advantages[:, None]
        own = self.forward.own_rows(part)
        teaches = part.mask.any(dim=1) & ((advantages != 0).any(dim=1) | penalised)
        return part.rows(own[teaches[own]])

    def _apply(self, finite: bool) -> tuple[float, bool]:
        """Take the optimizer step, unless something is not finite: (gradient norm before clipping, whether taken)."""
        grad_norm, scale = 0.0, self.scaler.get_scale()
        if not finite:  # the loss itself: its gradients say nothing about the scale
            grad_norm = math.nan
        elif any(parameter.grad is not None for parameter in self.parameters):
            self.scaler.unscale_(self.optimizer)
            grad_norm = clipped(self.parameters, self.config.max_grad_norm)
            finite = math.isfinite(grad_norm)
            if finite:
                self.scaler.step(self.optimizer)
            self.scaler.update()
        is_too_large = self.scaler.get_scale() < scale and scale > SMALLEST_LOSS_SCALE
        if not is_too_large:
            self._skipped_in_a_row = 0 if finite else self._skipped_in_a_row + 1
        self.skipped += not finite
        self.optimizer.zero_grad(set_to_none=True)
        self.updates += 1
        if self._skipped_in_a_row >= MAX_SKIPPED_IN_A_ROW:
            raise NonFiniteError(
                f"loss or gradient was not finite in {MAX_SKIPPED_IN_A_ROW} optimizer steps one after another; "
                f"lower trainer.learning_rate ({self.config.learning_rate:g}) or use precision=float32."
            )
        return grad_norm, finite

    def state(self) -> dict[str, Any]:
        """What updates have changed beside weights and optimizer, as JSON."""
        return {
            "updates": self.updates,
            "skipped": self.skipped,
            "skipped_in_a_row": self._skipped_in_a_row,
            "beta": self.beta.state(),
            "entropy_coef": self.entropy_coef.state(),
            "probes": self.probes.state(),
            "scaler": self.scaler.state_dict(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`."""
        self.updates, self.skipped = int(state["updates"]), int(state["skipped"])
        self._skipped_in_a_row = int(state["skipped_in_a_row"])
        self.beta.load_state(state["beta"])
        self.entropy_coef.load_state(state["entropy_coef"])
        self.probes.load_state(state["probes"])
        if state["scaler"]:  # empty where the loss is not scaled
            self.scaler.load_state_dict(dict(state["scaler"]))


def clipped(parameters: Sequence[torch.nn.Parameter], max_norm: float) -> float:
    """Clip gradients by their global norm, over all shards where they are sharded; return it as it was."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = whole(torch.nn.utils.get_total_norm(gradients))
    torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
    return float(norm)


def mean_metrics(taken: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Each metric's mean over the optimizer steps that measured it."""
    names = dict.fromkeys(name for metrics in taken for name in metrics)
    return {
        name: sum(found) / len(found)
        for name in names
        if (found := [metrics[name] for metrics in taken if name in metrics])
    }
