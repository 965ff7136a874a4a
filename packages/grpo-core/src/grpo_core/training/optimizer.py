"""AdamW on all that is trained: its learning rate, the scaled loss of float16, and steps that must be skipped."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from grpo_core.algorithms.schedules import linear_warmup
from grpo_core.policy.parts import whole
from grpo_core.policy.policy import Policy
from grpo_core.training.algorithm import Algorithm
from grpo_sdk.errors import NonFiniteError

MAX_SKIPPED_IN_A_ROW = 10
"""Optimizer steps skipped one after another before the run fails: the weights are then beyond repair."""

SMALLEST_LOSS_SCALE = 1.0
"""In float16 a gradient that overflows halves the scale of the loss: only from here on it is not the scale's doing."""

TICKS = 10**6
"""Parts of a time limit that stand for steps where a schedule follows the time: finer than any step."""


class LearningRateSchedule:
    """A run's schedule, over its planned steps, or over its time limit where no number of steps is planned.

    Args:
        algorithm: The schedule and its warm-up.
        total_updates: Optimizer steps planned; None follows the time.
    """

    def __init__(self, algorithm: Algorithm, total_updates: int | None) -> None:
        self._function, self._total = algorithm.schedule.function, total_updates
        self._warmup_steps, self._warmup_ratio = algorithm.config.warmup_steps, algorithm.config.warmup_ratio
        self._takes_warmup = "warmup_steps" in algorithm.schedule.arguments

    def factor(self, update: int, time_share: float) -> float:
        """Factor of the learning rate.

        Args:
            update: Optimizer steps taken.
            time_share: Share of the time limit that has passed; of no meaning where steps are planned.
        """
        ratio, total = self._warmup_ratio, self._total
        if total is not None:
            step, warmup = update, self._warmup_steps if ratio is None else round(ratio * total)
        else:
            step, total, warmup = min(TICKS, int(TICKS * time_share)), TICKS, round(TICKS * (ratio or 0.0))
        if not self._takes_warmup:
            return float(self._function(step, total))
        factor = float(self._function(step, total, warmup_steps=warmup))
        # A warm-up in steps goes by steps also where the schedule follows the time.
        return factor if self._total is not None else factor * linear_warmup(update, self._warmup_steps)


class PolicyOptimizer:
    """Optimizer of a policy and its value head; skips steps whose loss or gradient is not finite.

    Args:
        policy: The model.
        algorithm: Settings of the optimizer, and the learning rate schedule.
        total_updates: Optimizer steps that the schedule is laid over; None lays it over the time limit.

    Attributes:
        parameters: All parameters that are trained, the value head's included.
        adam: The AdamW optimizer.
        scaler: Scales the loss in float16, where small gradients would be 0: up after 2,000 good steps, down after each
            that overflows, which is skipped.
        time_share: Share of the run's time limit that has passed, for a learning rate that follows it.
        updates: Optimizer steps so far, skipped ones included.
        begun: Optimizer steps of this process that changed weights, or had begun to when they failed.
        schedule: The learning rate's schedule.
        skipped: Optimizer steps skipped because loss or gradient was not finite.
    """

    def __init__(self, policy: Policy, algorithm: Algorithm, total_updates: int | None) -> None:
        config = self._config = algorithm.config
        groups: list[dict[str, Any]] = [{"params": policy.parameters(), "peak": config.learning_rate}]
        if policy.value_head is not None:
            peak = config.learning_rate if config.value_learning_rate is None else config.value_learning_rate
            groups.append({"params": list(policy.value_head.parameters()), "peak": peak})
        self.parameters: Sequence[torch.nn.Parameter] = [parameter for group in groups for parameter in group["params"]]
        self.adam: torch.optim.Optimizer = torch.optim.AdamW(
            groups,
            lr=config.learning_rate,
            betas=(config.adam_beta1, config.adam_beta2),
            eps=config.adam_epsilon,
            weight_decay=config.weight_decay,
            # In one pass over the weights. With weights on a CPU it rounds otherwise than torch's default there.
            fused=True if policy.device.type == "cuda" else None,
        )
        self.begun = 0
        self.adam.register_step_pre_hook(self._begin)
        self.schedule = LearningRateSchedule(algorithm, total_updates)
        self.time_share = 0.0
        self.scaler = torch.amp.GradScaler(policy.device.type, enabled=policy.autocast is torch.float16)
        self.updates = self.skipped = self._skipped_in_a_row = 0

    @property
    def learning_rate(self) -> float:
        """Learning rate of the next optimizer step."""
        return self._config.learning_rate * self._factor

    @property
    def _factor(self) -> float:
        return self.schedule.factor(self.updates, self.time_share)

    def _begin(self, *_: object) -> None:
        self.begun += 1

    def backward(self, loss: torch.Tensor) -> None:
        """Add a loss's gradient to the parameters', scaled where the loss is."""
        self.scaler.scale(loss).backward()

    def drop_gradients(self) -> None:
        """Remove every parameter's gradient."""
        self.adam.zero_grad(set_to_none=True)

    def unscale(self) -> None:
        """Take the scale out of gradients that no optimizer step follows."""
        scale = self.scaler.get_scale()
        for parameter in self.parameters if self.scaler.is_enabled() else ():
            if parameter.grad is not None:
                parameter.grad /= scale

    def step(self, *, is_finite: bool) -> tuple[float, bool]:
        """Take an optimizer step, unless loss or gradient is not finite, and drop the gradients.

        Args:
            is_finite: Whether the loss is, on every rank.

        Returns:
            (gradient norm before clipping, whether the step was taken).

        Raises:
            NonFiniteError: too many steps in a row had to be skipped.
        """
        grad_norm, scale = 0.0, self.scaler.get_scale()
        for group in self.adam.param_groups:
            group["lr"] = group["peak"] * self._factor
        if not is_finite:  # the loss itself: its gradients say nothing about the scale
            grad_norm = math.nan
        elif any(parameter.grad is not None for parameter in self.parameters):
            self.scaler.unscale_(self.adam)
            gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
            norm = whole(torch.nn.utils.get_total_norm(gradients))  # over all shards
            torch.nn.utils.clip_grads_with_norm_(self.parameters, self._config.max_grad_norm, norm)
            grad_norm = float(norm)
            is_finite = math.isfinite(grad_norm)
            if is_finite:
                self.scaler.step(self.adam)
            self.scaler.update()
        is_too_large = self.scaler.get_scale() < scale and scale > SMALLEST_LOSS_SCALE
        if not is_too_large:
            self._skipped_in_a_row = 0 if is_finite else self._skipped_in_a_row + 1
        self.skipped += not is_finite
        self.drop_gradients()
        self.updates += 1
        if self._skipped_in_a_row >= MAX_SKIPPED_IN_A_ROW:
            raise NonFiniteError(
                f"loss or gradient was not finite in {MAX_SKIPPED_IN_A_ROW} optimizer steps one after another; "
                f"lower trainer.learning_rate ({self._config.learning_rate:g}) or use precision=float32."
            )
        return grad_norm, is_finite

    def state(self) -> dict[str, Any]:
        """Everything that steps have changed beside weights and Adam's moments, as JSON."""
        return {
            "updates": self.updates,
            "skipped": self.skipped,
            "skipped_in_a_row": self._skipped_in_a_row,
            "scaler": self.scaler.state_dict(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`."""
        self.updates, self.skipped = int(state["updates"]), int(state["skipped"])
        self._skipped_in_a_row = int(state["skipped_in_a_row"])
        if state["scaler"]:  # empty where the loss is not scaled
            self.scaler.load_state_dict(dict(state["scaler"]))
