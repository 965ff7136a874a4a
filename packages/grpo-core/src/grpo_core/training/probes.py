"""Measurements beside an update that leave the weights bit-identical: gradient noise scale and entropy probe.

Whatever they add to gradients is put back, and the random state of dropout is not consumed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from grpo_core.algorithms.entropy_probe import predicted_entropy_change, probe_coefficients
from grpo_core.algorithms.masking import masked_sum
from grpo_core.algorithms.noise_scale import NoiseScale, gns_pair
from grpo_core.config import TrainerConfig
from grpo_core.policy.parts import local_part
from grpo_core.policy.policy import Policy
from grpo_core.policy.ranks import Ranks
from grpo_core.training.batch import TrainBatch
from grpo_core.training.forward import ForwardPasses
from grpo_core.training.objective import PenaltyCoefficients


class Gradients(Protocol):
    """What the probes need of the updater."""

    policy: Policy
    config: TrainerConfig
    ranks: Ranks
    forward: ForwardPasses
    parameters: Sequence[torch.nn.Parameter]
    optimizer: torch.optim.Optimizer

    @property
    def learning_rate(self) -> float:
        """Learning rate of the next optimizer step."""

    def weighted(self, part: TrainBatch) -> TrainBatch:
        """Rows of one optimizer step with their tokens' weights."""

    def gradient(self, part: TrainBatch, coefficients: PenaltyCoefficients) -> None:
        """Add the gradient of some weighted rows to parameters without one."""

    def backward(self, loss: Tensor) -> None:
        """Add a loss's gradient to the parameters', scaled where the loss is."""

    def unscale(self) -> None:
        """Take the scale out of gradients that no optimizer step follows."""


class Probes:
    """The probes of a run.

    Args:
        updater: Gives the gradients.
        folder: Receives `entropy_probes/`; None keeps the entropy probe's metrics only.
    """

    def __init__(self, updater: Gradients, folder: Path | None) -> None:
        self.updater, self.folder = updater, folder
        self._micro, self._pair = NoiseScale(), NoiseScale()

    def noise(self, part: TrainBatch) -> MicroNoise:
        """The in-loop noise scale of one optimizer step, which measures nothing where it is not asked for."""
        config = self.updater.config
        # The unit is a whole prompt. Only micro-batches of whole prompts as they were drawn are a random sample.
        size, prompts = config.micro_batch_prompts, len(part.groups.unique())
        usable = config.gradient_noise_scale and size is not None and size < prompts
        return MicroNoise(self.updater, self._micro, size or 0, prompts if usable else 0)

    def before(self, part: TrainBatch, coefficients: PenaltyCoefficients, update: int) -> dict[str, float]:
        """Measurements that take backward passes of their own, before the step's."""
        config = self.updater.config
        found: dict[str, float] = {}
        if _due(config.gns_probe_steps, update):
            found |= self._small_batch(part, coefficients)
        if (
            _due(config.entropy_probe_steps, update) and self.updater.optimizer.state
        ):  # Adam's metric needs a first step
            found |= self._entropy(part, update)
        return found

    def after(self, probed: Mapping[str, float], big_squared_norm: float) -> dict[str, float]:
        """Complete the two-batch probe with the step's own gradient; other measurements pass through."""
        found = dict(probed)
        if "gns_probe/small_squared_norm" in found:
            small, big = found["gns_probe/b_small"], found["gns_probe/b_big"]
            g2, trace = gns_pair(found["gns_probe/small_squared_norm"], big_squared_norm, b_small=small, b_big=big)
            found |= {f"gns_probe/{name}": value for name, value in _noise_metrics(self._pair, g2, trace).items()}
        return found

    def state(self) -> dict[str, Any]:
        """Running means, as JSON."""
        return {"micro": self._micro.state(), "pair": self._pair.state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`."""
        self._micro.load_state(state["micro"])
        self._pair.load_state(state["pair"])

    def _small_batch(self, part: TrainBatch, coefficients: PenaltyCoefficients) -> dict[str, float]:
        prompts = part.groups.unique_consecutive()
        wanted = self.updater.config.gns_probe_prompts
        rows = torch.isin(part.groups, prompts[:wanted]).nonzero()[:, 0]
        with self._aside():
            self.updater.gradient(self.updater.weighted(part.rows(rows)), coefficients)
            squared = self._over_shards(_squared_norm(self.updater.parameters))
        return {
            "gns_probe/small_squared_norm": squared,
            "gns_probe/b_small": float(wanted),
            "gns_probe/b_big": float(len(prompts)),
        }

    def _entropy(self, part: TrainBatch, update: int) -> dict[str, float]:
        """Predict how the step will change the entropy, from ∇S of whole completions in Adam's metric."""
        updater = self.updater
        sequence_logp = masked_sum(part.sampler_logprobs.double(), part.mask, dim=1)  # S [B]
        advantages = part.advantages if part.advantages.dim() == 1 else masked_sum(part.advantages, part.mask, dim=1)
        weights = part.weights.sum(dim=1) / part.mask.sum(dim=1).clamp(min=1)
        gradients = []
        for coefficients in probe_coefficients(sequence_logp, advantages, weights):
            with self._aside():
                self._backward_of_sums(part, coefficients)
                gradients.append([local_part(_gradient(parameter)).clone() for parameter in updater.parameters])
        averages, epsilon = self._adam_averages(), updater.config.adam_epsilon
        of_entropy, of_advantage = gradients
        change = predicted_entropy_change(
            of_entropy,
            of_advantage,
            averages,
            learning_rate=updater.learning_rate,
            epsilon=epsilon,
            total_weight=float(weights.sum()),
        )
        change = self._over_shards(change)  # an inner product
        if self.folder is not None:
            self._save_entropy(update, part, sequence_logp, advantages, change)
        return {"entropy_probe/predicted_change": change}

    def _backward_of_sums(self, part: TrainBatch, coefficients: Tensor) -> None:
        """Backward of Σ_i coefficient_i · S_i, with S_i the log-probability of completion i."""
        policy, forward = self.updater.policy, self.updater.forward
        part = replace(part, advantages=coefficients)
        part = part.rows(forward.own_rows(part))
        with policy.in_step():
            for micro in forward.micro_batches(part):
                rows = part.rows(micro.rows).to(policy.device)
                with policy.precision():
                    states = policy.states(rows.input_ids, rows.prompt_lens, rows.completion_lens, micro.packs)
                    logp, _ = states.logprobs(temperature=self.updater.config.temperature)
                sums = masked_sum(logp.to(policy.wide), rows.mask, dim=1)
                self.updater.backward((rows.advantages * sums).sum())
        self.updater.ranks.sum_gradients(self.updater.parameters)
        self.updater.unscale()

    def _adam_averages(self) -> list[Tensor]:
        """Adam's bias-corrected second moments v̂; ones for a parameter that never had a gradient."""
        optimizer, beta2 = self.updater.optimizer, self.updater.config.adam_beta2
        averages = []
        for parameter in self.updater.parameters:
            state = optimizer.state.get(parameter)
            if state:
                averages.append(local_part(state["exp_avg_sq"]) / (1 - beta2 ** float(state["step"])))
            else:
                averages.append(torch.ones_like(local_part(parameter)))
        return averages

    def _over_shards(self, value: float) -> float:
        """A sum over weights, from each rank's part of them where they are sharded."""
        if self.updater.policy.shards is None:
            return value
        return float(self.updater.ranks.sum(torch.tensor(value, dtype=torch.float64)))

    def _save_entropy(
        self, update: int, part: TrainBatch, sequence_logp: Tensor, advantages: Tensor, change: float
    ) -> None:
        assert self.folder is not None
        folder = self.folder / "entropy_probes" / f"step_{update}"
        folder.mkdir(parents=True, exist_ok=True)
        lengths = part.mask.sum(dim=1)
        np.save(folder / "S.npy", sequence_logp.numpy())
        np.save(folder / "A.npy", advantages.numpy())
        np.save(folder / "entropy_tok_mean.npy", (-sequence_logp / lengths.clamp(min=1)).numpy())
        (folder / "deltaH_pred.json").write_text(json.dumps({"deltaH_pred": change}) + "\n", encoding="utf-8")
        meta = {"update": update, "rows": len(part), "learning_rate": self.updater.learning_rate}
        (folder / "meta.json").write_text(json.dumps(meta) + "\n", encoding="utf-8")

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """Gradients of the block are dropped afterwards, and its random numbers are not consumed."""
        parameters = self.updater.parameters
        kept = [parameter.grad for parameter in parameters]
        for parameter in parameters:
            parameter.grad = None
        try:
            with torch.random.fork_rng():
                yield
        finally:
            for parameter, grad in zip(parameters, kept, strict=True):
                parameter.grad = grad


@dataclass(slots=True)
class MicroNoise:
    """Gradient noise scale from the micro-batch gradients of one optimizer step.

    Attributes:
        updater: Gives the gradients.
        scale: Running means.
        size: Prompts b of a micro-batch.
        prompts: Prompts P of the step; 0 measures nothing.
        total: Sum of the squared norms of the micro-batches' shares of the gradient; skipped prompts have share 0.
    """

    updater: Gradients
    scale: NoiseScale
    size: int
    prompts: int
    total: float = 0.0

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """Measure what a backward pass adds to the gradients, by hooks that see it being added."""
        handles = [parameter.register_hook(self._take) for parameter in self.updater.parameters if self.prompts]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _take(self, gradient: Tensor) -> None:
        # Wide: squares of half-precision gradients underflow.
        norm = torch.linalg.vector_norm(gradient, dtype=torch.promote_types(gradient.dtype, torch.float32))
        self.total += float(norm) ** 2

    def result(self, squared_norm: float, loss_scale: float) -> dict[str, float]:
        """Metrics, once the gradients of all prompts are there.

        Args:
            squared_norm: ‖G‖² of the whole step, before clipping.
            loss_scale: Of float16's scaled loss, whose gradients were measured.
        """
        if not self.prompts:
            return {}
        total = float(self.updater.ranks.sum(torch.tensor(self.total, dtype=torch.float64)))
        # Of m = P / b micro-batches each has 1/m of its mean gradient g_b: mean ‖g_b‖² = m² · Σ ‖share‖² / m.
        small = self.prompts / self.size * total / loss_scale**2
        g2, trace = gns_pair(small, squared_norm, b_small=self.size, b_big=self.prompts)
        return {f"gns/{name}": value for name, value in _noise_metrics(self.scale, g2, trace).items()}


def _noise_metrics(scale: NoiseScale, g2: float, trace: float) -> dict[str, float]:
    return {"g2": g2, "trace": trace, "b_simple": scale.update(g2, trace)}


def _due(every: int | None, update: int) -> bool:
    return every is not None and update % every == 0


def _gradient(parameter: Tensor) -> Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


def _squared_norm(parameters: Sequence[torch.nn.Parameter]) -> float:
    return sum(float(local_part(p.grad.detach()).double().square().sum()) for p in parameters if p.grad is not None)
