"""Measurements beside an update that leave the weights bit-identical: gradient noise scale and entropy probe.

Whatever they add to gradients is put back, and the random state of dropout is not consumed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from grpo_core.algorithms.entropy_probe import predicted_entropy_change, probe_coefficients
from grpo_core.algorithms.masking import masked_sum
from grpo_core.algorithms.noise_scale import NoiseScale, gns_pair
from grpo_core.checkpoints import write_json
from grpo_core.policy.parts import local_part
from grpo_core.training.batch import MicroBatch, TrainBatch
from grpo_core.training.objective import Objective, PenaltyCoefficients
from grpo_core.training.optimizer import PolicyOptimizer
from grpo_core.training.statistics import UpdateStatistics
from grpo_sdk.files import written_whole


class Probes:
    """The probes of a run, around each of its optimizer steps.

    Args:
        objective: The loss.
        optimizer: The parameters, and Adam's moments.
        folder: Receives `entropy_probes/`; None keeps the entropy probe's metrics only.

    Attributes:
        are_wanted: Whether the configuration asks for any.
    """

    def __init__(self, objective: Objective, optimizer: PolicyOptimizer, folder: Path | None) -> None:
        self._objective, self._optimizer, self._folder = objective, optimizer, folder
        forward = self._forward = objective.forward
        config = self._config = forward.config
        self._policy, self._ranks = forward.policy, forward.ranks
        self.are_wanted = bool(config.gradient_noise_scale or config.gns_probe_steps or config.entropy_probe_steps)
        self._micro, self._pair = NoiseScale(), NoiseScale()
        # Of a step's micro-batches: prompts of one, of all (0 measures nothing), and the sum of the squared norms of
        # their shares of the gradient; skipped prompts have share 0.
        self._size, self._prompts, self._total = 0, 0, 0.0

    def before(self, part: TrainBatch, coefficients: PenaltyCoefficients, update: int) -> dict[str, float]:
        """Measurements that take backward passes of their own, before the step's, which are run in `measuring`."""
        self._begin_noise(part)
        metrics: dict[str, float] = {}
        if _due(self._config.gns_probe_steps, update):
            metrics |= self._small_batch(part, coefficients)
        if _due(self._config.entropy_probe_steps, update) and self._optimizer.adam.state:  # whose metric is measured in
            metrics |= self._entropy(part, update)
        return metrics

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """Measure what a backward pass of the step adds to the gradients, by hooks that see it being added."""
        handles = [parameter.register_hook(self._take) for parameter in self._optimizer.parameters if self._prompts]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def after(self, probed: Mapping[str, float], squared_norm: float, loss_scale: float) -> dict[str, float]:
        """All measurements, with the step's own gradient.

        Args:
            probed: Result of `before`.
            squared_norm: ‖G‖² of the whole step, before clipping.
            loss_scale: Scale of the loss in float16, which the gradients seen in `measuring` have.
        """
        metrics: dict[str, float] = {}
        if self._prompts:
            is_whole = self._forward.budget.limits.prompts == self._size  # else the total has passes of two sizes
            total = float(self._ranks.sum(torch.tensor(self._total if is_whole else math.nan, dtype=torch.float64)))
            # Of m = P / b micro-batches each has 1/m of its mean gradient g_b: mean ‖g_b‖² = m² · Σ ‖share‖² / m.
            mean = self._prompts / self._size * total / loss_scale**2
            g2, trace = gns_pair(mean, squared_norm, b_small=self._size, b_big=self._prompts)
            metrics |= {f"gns/{name}": value for name, value in _noise_metrics(self._micro, g2, trace).items()}
        metrics |= probed
        if "gns_probe/small_squared_norm" in metrics:
            small, big = metrics["gns_probe/b_small"], metrics["gns_probe/b_big"]
            g2, trace = gns_pair(metrics["gns_probe/small_squared_norm"], squared_norm, b_small=small, b_big=big)
            metrics["gns_probe/big_squared_norm"] = squared_norm
            metrics |= {f"gns_probe/{name}": value for name, value in _noise_metrics(self._pair, g2, trace).items()}
        return metrics

    def state(self) -> dict[str, Any]:
        """Running means, as JSON."""
        return {"micro": self._micro.state(), "pair": self._pair.state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`."""
        self._micro.load_state(state["micro"])
        self._pair.load_state(state["pair"])

    def _begin_noise(self, part: TrainBatch) -> None:
        """Begin the in-loop noise scale of a step, where it is asked for."""
        config, budget = self._config, self._forward.budget
        self._size, self._total, prompts = 0, 0.0, len(part.groups.unique())
        # The unit is a whole prompt. Only micro-batches of whole prompts as they were drawn are a random sample.
        if config.gradient_noise_scale and config.micro_batch_prompts is not None:
            budget.agree()  # passes may have been halved since the last step, on one rank
            self._size = budget.limits.prompts or 0
        is_equal = 0 < self._size < prompts and prompts // self._ranks.size % self._size == 0
        self._prompts = prompts if is_equal else 0

    def _take(self, gradient: Tensor) -> None:
        # Wide: squares of half-precision gradients underflow.
        norm = torch.linalg.vector_norm(gradient, dtype=torch.promote_types(gradient.dtype, torch.float32))
        self._total += float(norm) ** 2

    def _small_batch(self, part: TrainBatch, coefficients: PenaltyCoefficients) -> dict[str, float]:
        prompts = part.groups.unique_consecutive()
        wanted = self._config.gns_probe_prompts
        small = part.rows(torch.isin(part.groups, prompts[:wanted]).nonzero()[:, 0])
        small = replace(small, weights=self._objective.weights(small))  # a step of its own, with its denominator
        with self._aside():
            self._objective.add_gradient(small, coefficients, UpdateStatistics(), self._optimizer)
            self._optimizer.unscale()
            squared = self._over_shards(_squared_norm(self._optimizer.parameters))
        return {
            "gns_probe/small_squared_norm": squared,
            "gns_probe/b_small": float(wanted),
            "gns_probe/b_big": float(len(prompts)),
        }

    def _entropy(self, part: TrainBatch, update: int) -> dict[str, float]:
        """Predict how the step will change the entropy, from ∇S of whole completions in Adam's metric."""
        optimizer = self._optimizer
        sequence_logp = masked_sum(part.sampler_logprobs.double(), part.mask, dim=1)  # S [B]
        advantages = part.advantages if part.advantages.dim() == 1 else masked_sum(part.advantages, part.mask, dim=1)
        weights = part.weights.sum(dim=1) / part.mask.sum(dim=1).clamp(min=1)
        gradients = []
        for coefficients in probe_coefficients(sequence_logp, advantages, weights):
            with self._aside():
                self._backward_of_sums(part, coefficients)
                gradients.append([local_part(_grad_or_zeros(parameter)).clone() for parameter in optimizer.parameters])
        of_entropy, of_advantage = gradients
        change = predicted_entropy_change(
            of_entropy,
            of_advantage,
            self._adam_averages(),
            learning_rate=optimizer.learning_rate,
            epsilon=self._config.adam_epsilon,
            total_weight=float(weights.sum()),
        )
        change = self._over_shards(change)  # an inner product
        if self._folder is not None:
            self._save_entropy(update, part, sequence_logp, advantages, change)
        return {"entropy_probe/predicted_change": change}

    def _backward_of_sums(self, part: TrainBatch, coefficients: Tensor) -> None:
        """Backward of Σ_i coefficient_i · S_i, with S_i the log-probability of completion i."""
        policy, optimizer = self._policy, self._optimizer
        own = self._forward.own_rows(part)
        own_coefficients = coefficients[own]

        def add(micro: MicroBatch, rows: TrainBatch) -> None:
            with policy.precision():
                states = policy.states(*rows.inputs, micro.packs)
                logp, _ = states.logprobs(temperature=self._config.temperature)
            sums = masked_sum(logp.to(policy.wide), rows.mask, dim=1)
            optimizer.backward((sums * own_coefficients[micro.rows].to(sums)).sum())

        self._forward.each(part.rows(own), add, optimizer.drop_gradients)
        self._ranks.sum_gradients(optimizer.parameters)
        optimizer.unscale()

    def _adam_averages(self) -> list[Tensor]:
        """Adam's bias-corrected second moments v̂; ones for a parameter that never had a gradient."""
        beta2 = self._config.adam_beta2
        averages = []
        for parameter in self._optimizer.parameters:
            state = self._optimizer.adam.state.get(parameter)
            if state:
                averages.append(local_part(state["exp_avg_sq"]) / (1 - beta2 ** float(state["step"])))
            else:
                averages.append(torch.ones_like(local_part(parameter)))
        return averages

    def _over_shards(self, value: float) -> float:
        """A sum over weights, from each rank's part of them where they are sharded."""
        if self._policy.shards is None:
            return value
        return float(self._ranks.sum(torch.tensor(value, dtype=torch.float64))) / self._policy.shards.copies

    def _save_entropy(
        self, update: int, part: TrainBatch, sequence_logp: Tensor, advantages: Tensor, change: float
    ) -> None:
        assert self._folder is not None
        lengths = part.mask.sum(dim=1)
        meta = {"update": update, "rows": len(part), "learning_rate": self._optimizer.learning_rate}
        with written_whole(self._folder / "entropy_probes" / f"step_{update}") as folder:
            np.save(folder / "S.npy", sequence_logp.numpy())
            np.save(folder / "A.npy", advantages.numpy())
            np.save(folder / "entropy_tok_mean.npy", (-sequence_logp / lengths.clamp(min=1)).numpy())
            write_json(folder / "deltaH_pred.json", {"deltaH_pred": change})
            write_json(folder / "meta.json", meta)

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """Gradients of the block are dropped afterwards, and its random numbers are not consumed."""
        parameters = self._optimizer.parameters
        kept = [parameter.grad for parameter in parameters]
        for parameter in parameters:
            parameter.grad = None
        try:
            with torch.random.fork_rng():
                yield
        finally:
            for parameter, grad in zip(parameters, kept, strict=True):
                parameter.grad = grad


def _noise_metrics(scale: NoiseScale, g2: float, trace: float) -> dict[str, float]:
    return {"g2": g2, "trace": trace, "b_simple": scale.update(g2, trace)}


def _due(interval: int | None, update: int) -> bool:
    return interval is not None and update % interval == 0


def _grad_or_zeros(parameter: Tensor) -> Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


def _squared_norm(parameters: Sequence[torch.nn.Parameter]) -> float:
    return sum(float(local_part(p.grad.detach()).double().square().sum()) for p in parameters if p.grad is not None)
