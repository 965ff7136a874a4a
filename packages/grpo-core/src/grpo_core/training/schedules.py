"""Learning-rate schedules: (step, total steps) -> factor of the learning rate."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from grpo_core import registry
from grpo_core.algorithms.described import described
from grpo_core.config import TrainerConfig

TICKS = 10**6
"""Parts of a time limit that stand for steps where a schedule follows the time: finer than any step."""

FINAL_COSINE_FACTOR = 0.1
"""Cosine ends here and not at 0, so that additional steps still learn."""


@described(formula="1, after linear warm-up", source="no decay")
def constant(step: int, total_steps: int, *, warmup_steps: int = 0) -> float:
    """Linear warm-up, then 1. `step` counts from 0; `total_steps` is not used."""
    return _warmup(step, warmup_steps)


@described(formula="0.1 + 0.9·(1 + cos(π·progress)) / 2, after linear warm-up", source="arXiv 1608.03983")
def cosine(step: int, total_steps: int, *, warmup_steps: int = 0) -> float:
    """Linear warm-up, then half a cosine from 1 to `FINAL_COSINE_FACTOR` at `total_steps`, constant after."""
    if step < warmup_steps:
        return _warmup(step, warmup_steps)
    progress = min(1.0, (step - warmup_steps) / max(1, total_steps - warmup_steps))
    return FINAL_COSINE_FACTOR + (1 - FINAL_COSINE_FACTOR) * (1 + math.cos(math.pi * progress)) / 2


@described(formula="1", source="no schedule")
def none(step: int, total_steps: int) -> float:
    """Always 1, no warm-up."""
    return 1.0


@dataclass(frozen=True, slots=True)
class LearningRateSchedule:
    """A run's schedule, over its planned steps, or over its time limit where no number of steps is planned.

    Attributes:
        function: The schedule.
        takes_warmup: Whether it has a warm-up.
        total_updates: Optimizer steps planned; None follows the time.
        warmup_steps: Optimizer steps of warm-up.
        warmup_ratio: Warm-up as a share of the steps, or of the time; in place of `warmup_steps`.
    """

    function: Callable[..., float]
    takes_warmup: bool
    total_updates: int | None
    warmup_steps: int
    warmup_ratio: float | None

    @classmethod
    def of(cls, config: TrainerConfig, total_updates: int | None) -> LearningRateSchedule:
        """The schedule that a configuration names."""
        name = config.lr_scheduler_type
        takes_warmup = "warmup_steps" in registry.arguments("schedule", name)
        function = registry.resolve("schedule", name)
        return cls(function, takes_warmup, total_updates, config.warmup_steps, config.warmup_ratio)

    def factor(self, update: int, time_share: float) -> float:
        """Factor of the learning rate.

        Args:
            update: Optimizer steps taken.
            time_share: Share of the time limit that has passed; of no meaning where steps are planned.
        """
        if self.total_updates is not None:
            ratio = self.warmup_ratio
            warmup = self.warmup_steps if ratio is None else round(ratio * self.total_updates)
            return self._at(update, self.total_updates, warmup)
        # A warm-up in steps goes by steps also here, on top of what follows the time.
        factor = self._at(min(TICKS, int(TICKS * time_share)), TICKS, round(TICKS * (self.warmup_ratio or 0.0)))
        return factor * _warmup(update, self.warmup_steps) if self.takes_warmup else factor

    def _at(self, step: int, total: int, warmup: int) -> float:
        options = {"warmup_steps": warmup} if self.takes_warmup else {}
        return float(self.function(step, total, **options))


def follows_time(config: TrainerConfig, schedule_steps: int | None) -> bool:
    """Whether the learning rate depends on the clock."""
    varies = config.lr_scheduler_type not in ("constant", "none") or bool(config.warmup_ratio)
    return schedule_steps is None and varies


def _warmup(step: int, warmup_steps: int) -> float:
    # The first step already learns: a factor of 0 would waste a batch of completions.
    return min(1.0, (step + 1) / (warmup_steps + 1)) if warmup_steps else 1.0
