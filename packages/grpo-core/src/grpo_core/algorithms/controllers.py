"""Rules that move a coefficient after each optimizer step, most of them so that a measured quantity meets its target.

Each takes the coefficient and the history of what was measured, newest last, and gives the next coefficient. The KL
that drives them is the token mean of an estimator that is never negative (k2, k3, full): β multiplied by the sign of
noise would be noise. Without a measurement the coefficient stays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from grpo_sdk.errors import UserError
from grpo_sdk.plugins.variant import checked_by

Controller = TypeVar("Controller", bound=Callable[..., float])

HISTORY = 100
"""Measurements that a rule may look back on (RookWorld's running mean); older ones need not be kept."""


def constant(coefficient: float, history: Sequence[float]) -> float:
    """Leave the coefficient as it is."""
    return coefficient


def _check_proportional(target: float, horizon: float, n_steps: int, clip: float) -> None:
    _check_above_0(target=target, horizon=horizon, n_steps=n_steps, clip=clip)
    if clip * n_steps / horizon >= 1:
        raise UserError(
            f"clip={clip} · n_steps={n_steps} / horizon={horizon} is 1 or more: one update could take beta to 0 or "
            f"below. Raise horizon above {clip * n_steps:g}."
        )


@checked_by(_check_proportional)
def proportional(
    coefficient: float,
    history: Sequence[float],
    *,
    target: float = 0.01,
    horizon: float = 20.0,
    n_steps: int = 1,
    clip: float = 0.2,
) -> float:
    """Move β by a bounded share of the newest KL's relative error.

    Args:
        coefficient: β.
        history: KL per token of past steps.
        target: KL per token, in nats.
        horizon: n_steps in which β can change by about the factor 1 ± clip. The default counts updates; the source
            counts samples, 512 an update and 10,000 to the horizon.
        n_steps: Steps that one update counts for.
        clip: Bound of the relative error.

    Raises:
        UserError: a KL that is negative or no number.
    """
    if not history:
        return coefficient
    error = min(max(_checked(history[-1]) / target - 1, -clip), clip)
    return coefficient * (1 + error * n_steps / horizon)


PPO_BAND, PPO_FACTOR = 1.5, 2.0
"""The two constants of PPO's rule; the paper chose them by hand and found the algorithm not sensitive to them."""


def _check_target(target: float) -> None:
    _check_above_0(target=target)


@checked_by(_check_target)
def ppo_rule(coefficient: float, history: Sequence[float], *, target: float = 0.01) -> float:
    """Double or halve β where the newest KL leaves a band around the target.

    Args:
        coefficient: β.
        history: KL per token of past steps.
        target: KL per token, in nats.

    Raises:
        UserError: a KL that is negative or no number.
    """
    if not history:
        return coefficient
    kl = _checked(history[-1])
    if kl > target * PPO_BAND:
        return coefficient * PPO_FACTOR
    return coefficient / PPO_FACTOR if kl < target / PPO_BAND else coefficient


STEP_BAND, STEP_UP, STEP_DOWN = 2.0, 1.5, 0.8
"""RookWorld's band and factors: it climbs faster than it descends."""


def _check_step_rule(target: float, minimum: float, maximum: float) -> None:
    _check_above_0(target=target)
    _check_order(minimum, maximum)


@checked_by(_check_step_rule)
def step_rule(
    coefficient: float,
    history: Sequence[float],
    *,
    target: float = 0.01,
    minimum: float = 0.001,
    maximum: float = 1.0,
) -> float:
    """Raise or lower β by a fixed factor where the running mean of the KL leaves a band around the target.

    Args:
        coefficient: β.
        history: KL per token of past steps.
        target: KL per token, in nats.
        minimum: Lower bound of β.
        maximum: Upper bound of β.

    Raises:
        UserError: a KL that is negative or no number.
    """
    if not history:
        return coefficient
    recent = [_checked(kl) for kl in history[-HISTORY:]]
    mean = math.fsum(recent) / len(recent)
    if mean > STEP_BAND * target:
        coefficient *= STEP_UP
    elif mean < target / STEP_BAND:
        coefficient *= STEP_DOWN
    return min(max(coefficient, minimum), maximum)


def _check_decay(half_life: float, minimum: float) -> None:
    _check_above_0(half_life=half_life)
    if minimum < 0:
        raise UserError(f"minimum={minimum:g} must be at least 0.")


@checked_by(_check_decay)
def decay(coefficient: float, history: Sequence[float], *, half_life: float = 100.0, minimum: float = 0.0) -> float:
    """Halve the coefficient every `half_life` optimizer steps, whatever is measured.

    Args:
        coefficient: The coefficient.
        history: Not used.
        half_life: Optimizer steps; a step of training has `num_iterations` of them for each mini-batch.
        minimum: Lower bound of the coefficient.
    """
    return max(coefficient * math.exp2(-1 / half_life), minimum)


def kl_warmup(beta: float, step: int, *, warmup_steps: int) -> float:
    """β·min(1, step / warmup_steps) at a step counted from 0; β where there is no warm-up."""
    return beta if step >= warmup_steps else beta * step / warmup_steps


def gated(gate: Callable[..., bool]) -> Callable[[Controller], Controller]:
    """Mark a controller whose coefficient applies only while `gate(history, **options)` holds."""

    def mark(function: Controller) -> Controller:
        function.gate = gate  # type: ignore[attr-defined] # a function takes any attribute
        return function

    return mark


def applied(controller: Callable[..., float], coefficient: float, history: Sequence[float], **options: Any) -> float:
    """The coefficient of the coming step: 0 where the controller has a gate and it is shut."""
    gate = getattr(controller, "gate", None)
    return coefficient if gate is None or gate(history, **options) else 0.0


def _was_below_target(history: Sequence[float], *, target: float, **_: float) -> bool:
    return not history or history[-1] < target


def _check_entropy_rule(target: float, delta: float, minimum: float, maximum: float) -> None:
    _check_above_0(target=target, delta=delta)
    _check_order(minimum, maximum)


@checked_by(_check_entropy_rule)
@gated(_was_below_target)
def adaptive_entropy(
    coefficient: float,
    history: Sequence[float],
    *,
    target: float = 0.2,
    delta: float = 1e-4,
    minimum: float = 0.0,
    maximum: float = 0.005,
) -> float:
    """Add or take away a fixed amount, so that the entropy does not fall below a floor.

    The coefficient is adjusted in every step, but applies only while the entropy is below the target; else the bonus is
    0. Defaults are those of Skywork-OR1-7B.

    Args:
        coefficient: The kept one.
        history: Entropy per token of past steps, in nats.
        target: The floor.
        delta: The amount.
        minimum: Lower bound of the coefficient.
        maximum: Upper bound of the coefficient.

    Raises:
        UserError: an entropy that is negative or no number.
    """
    if not history:
        return coefficient
    coefficient += delta if _checked(history[-1]) < target else -delta
    return min(max(coefficient, minimum), maximum)


def _checked(measured: float) -> float:
    """Return a measurement, after checking that it can drive a controller."""
    if not (measured >= 0 and math.isfinite(measured)):
        raise UserError(
            f"a controller was given {measured}: it is driven by a finite quantity that cannot be negative, as the "
            f"token mean of k2, k3 or full, or the entropy. Measure one of those, and leave out steps that failed."
        )
    return measured


def _check_above_0(**options: float) -> None:
    for name, value in options.items():
        if not value > 0:
            raise UserError(f"{name}={value:g} must be above 0.")


def _check_order(minimum: float, maximum: float) -> None:
    if not 0 <= minimum <= maximum:
        raise UserError(f"minimum={minimum:g} and maximum={maximum:g} must satisfy 0 <= minimum <= maximum.")
