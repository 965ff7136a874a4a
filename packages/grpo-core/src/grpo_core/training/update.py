"""One generated batch -> optimizer steps, and what is measured on the way."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from grpo_core.algorithms.controllers import HISTORY, applied, kl_warmup
from grpo_core.algorithms.masking import masked_mean
from grpo_core.policy.pass_budget import PassLimits
from grpo_core.policy.policy import Policy
from grpo_core.policy.ranks import Ranks
from grpo_core.training.algorithm import Algorithm
from grpo_core.training.batch import Snapshot, TokenBatch, TrainBatch
from grpo_core.training.forward import ForwardPasses
from grpo_core.training.objective import Objective, PenaltyCoefficients
from grpo_core.training.optimizer import PolicyOptimizer
from grpo_core.training.probes import Probes
from grpo_core.training.statistics import UpdateStatistics
from grpo_sdk.plugins.variants import BoundVariant


class Updater:
    """Turns batches into optimizer steps.

    Args:
        policy: The model.
        algorithm: The functions and settings of an update.
        total_steps: Generated batches that the schedule is laid over; None lays it over the time limit.
        probe_dir: Folder that receives what the entropy probe saves.
        ranks: The processes that take each step together.
        max_turns: Turns that a rollout may have.
        warn: Receives one warning if memory runs out.

    Attributes:
        forward: Forward passes over whole batches.
        objective: The loss, and its gradient.
        optimizer: Takes the steps, and counts them.
        beta: Weight of the KL penalty.
        entropy_coef: Weight of the entropy bonus.
        probes: Measurements that leave the weights as they are.
    """

    def __init__(
        self,
        policy: Policy,
        algorithm: Algorithm,
        total_steps: int | None,
        probe_dir: Path | None = None,
        ranks: Ranks | None = None,
        max_turns: int = 1,
        warn: Callable[[str], None] = lambda message: None,
    ) -> None:
        config = algorithm.config
        self.policy, self.config, self.ranks = policy, config, ranks or Ranks()
        self._steps_per_batch = config.num_iterations * config.steps_per_generation
        total_updates = None if total_steps is None else total_steps * self._steps_per_batch
        self.forward = ForwardPasses(policy, algorithm, self.ranks, warn)
        self.objective = Objective(algorithm, self.forward, max_turns)
        self.optimizer = PolicyOptimizer(policy, algorithm, total_updates)
        self.beta = Coefficient(config.beta, algorithm.kl_controller, warmup_steps=config.kl_warmup_steps)
        self.entropy_coef = Coefficient(config.entropy_coef, algorithm.entropy_controller)
        self._configured_limits = asdict(PassLimits.of(config))
        self.probes = Probes(self.objective, self.optimizer, probe_dir)

    def batch(
        self, tokens: TokenBatch, snapshot: Snapshot, advantages: Tensor, returns: Tensor | None = None
    ) -> TrainBatch:
        """The batch of which `update` takes its steps.

        Args:
            tokens: The rollouts, group by group.
            snapshot: Of `forward.snapshot`.
            advantages: [B] or [B, T] float64.
            returns: [B, T] what the value head learns to predict.
        """
        weights = torch.zeros(tokens.mask.shape, dtype=torch.float64)
        for index in self._parts(tokens):
            own = self.objective.weights(tokens.rows(index))
            weights[index, : own.shape[1]] = own
        return TrainBatch.of(tokens, snapshot, advantages=advantages, weights=weights, returns=returns)

    def update(self, batch: TrainBatch, *, time_share: float = 0.0) -> dict[str, float]:
        """Take the optimizer steps of one generated batch.

        Args:
            batch: Result of `batch`.
            time_share: Share of the run's time limit that has passed, for a learning rate that follows it.

        Returns:
            Each metric's mean over the optimizer steps, and `update_s`.

        Raises:
            NonFiniteError: too many steps in a row had to be skipped.
        """
        started = time.perf_counter()
        self.optimizer.time_share = time_share
        self.policy.model.train()
        parts = self._parts(batch)
        steps = [self._step(batch.rows(parts[step % len(parts)])) for step in range(self._steps_per_batch)]
        self.forward.budget.agree()
        return {
            **mean_metrics(steps),
            "update_s": time.perf_counter() - started,
            "skipped_updates": float(self.optimizer.skipped),
        }

    def _parts(self, tokens: TokenBatch) -> list[Tensor]:
        """The rows of each optimizer step of an iteration: whole groups."""
        groups = tokens.groups.unique_consecutive().chunk(self.config.steps_per_generation)
        return [torch.isin(tokens.groups, chunk).nonzero()[:, 0] for chunk in groups]

    def _step(self, part: TrainBatch) -> dict[str, float]:
        coefficients, statistics = self.coefficients(), UpdateStatistics()
        measuring: Callable[[], AbstractContextManager[None]] = nullcontext
        probed: Mapping[str, float] = {}
        if self.probes.are_wanted:
            measuring, probed = (
                self.probes.measuring,
                self.probes.before(part, coefficients, self.optimizer.updates + 1),
            )
        is_finite = self.objective.add_gradient(part, coefficients, statistics, self.optimizer, measuring)
        learning_rate, scale = self.optimizer.learning_rate, self.optimizer.scaler.get_scale()
        grad_norm, is_taken = self.optimizer.step(is_finite=not self.ranks.any(not is_finite))
        statistics = statistics.of_all(self.ranks)
        measured = statistics.metrics()
        if is_taken:
            if self.probes.are_wanted:
                measured |= self.probes.after(probed, grad_norm**2, scale)
            before = part.snapshot.token_k3
            measured_kl = statistics.mean("kl/k3", "kl") if before is None else float(masked_mean(before, part.mask))
            self.beta.observe(measured_kl)
            self.entropy_coef.observe(statistics.mean("entropy"))
        metrics = {
            "loss": 0.0,  # where no row has a gradient
            **measured,
            "grad_norm": grad_norm,
            "learning_rate": learning_rate,
        }
        if self.optimizer.scaler.is_enabled():
            metrics["loss_scale"] = scale
        if self.config.beta:
            metrics["kl_coef"] = coefficients.beta
        if self.config.entropy_coef:
            metrics["entropy_coef"] = coefficients.entropy
        if not is_taken:  # a skipped step has numbers that are not finite, which a checkpoint could not hold
            metrics = {name: value for name, value in metrics.items() if math.isfinite(value)}
        return metrics

    def coefficients(self) -> PenaltyCoefficients:
        """Weights of the penalties in the next optimizer step."""
        return PenaltyCoefficients(self.beta.in_effect, self.entropy_coef.in_effect)

    def move_reference(self, step: int) -> None:
        """Move the reference after a batch, where the configuration says so."""
        steps = self.config.ref_model_sync_steps
        if steps is not None and step % steps == 0:
            assert self.policy.anchor is not None, "the configuration was checked"
            self.policy.anchor.move(self.config.ref_model_mixup_alpha)

    def state(self) -> dict[str, Any]:
        """Everything that updates have changed beside weights and Adam's moments, as JSON."""
        return {
            **self.optimizer.state(),
            "beta": self.beta.state(),
            "entropy_coef": self.entropy_coef.state(),
            "probes": self.probes.state(),
            "limits": asdict(self.forward.budget.limits),
            "configured_limits": self._configured_limits,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`."""
        self.optimizer.load_state(state)
        self.beta.load_state(state["beta"])
        self.entropy_coef.load_state(state["entropy_coef"])
        self.probes.load_state(state["probes"])
        if state["configured_limits"] == self._configured_limits:  # else they were set anew for a resume
            self.forward.budget.limits = PassLimits(**state["limits"])


def mean_metrics(steps: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Each metric's mean over the optimizer steps that measured it."""
    names = dict.fromkeys(name for metrics in steps for name in metrics)
    return {
        name: sum(values) / len(values)
        for name in names
        if (values := [metrics[name] for metrics in steps if name in metrics])
    }


class Coefficient:
    """One coefficient with its controller.

    Args:
        value: Initial value.
        controller: The controller, which changes the value after each update.
        warmup_steps: Updates over which the coefficient in effect grows linearly from 0.

    Attributes:
        value: The value that the controller keeps, before warm-up.
    """

    def __init__(self, value: float, controller: BoundVariant, *, warmup_steps: int = 0) -> None:
        self.value, self.warmup_steps = value, warmup_steps
        self._controller = controller
        self._history: deque[float] = deque(maxlen=HISTORY)
        self._updates = 0

    @property
    def in_effect(self) -> float:
        """The coefficient of the next update, warm-up included."""
        value = applied(self._controller.function, self.value, tuple(self._history), **self._controller.arguments)
        if not self.warmup_steps:
            return value
        return kl_warmup(value, self._updates + 1, warmup_steps=self.warmup_steps)

    def observe(self, measured: float) -> None:
        """Give the controller the measurement of an update; a number that is not finite is left out."""
        self._updates += 1
        if math.isfinite(measured):
            self._history.append(measured)
            self.value = float(self._controller(self.value, tuple(self._history)))

    def state(self) -> dict[str, Any]:
        """Everything that `observe` changed, as JSON."""
        return {"value": self.value, "history": list(self._history), "updates": self._updates}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`."""
        self.value, self._updates = float(state["value"]), int(state["updates"])
        self._history = deque(map(float, state["history"]), maxlen=HISTORY)
