"""The learning rate of a run: a schedule over its planned steps, or over its time limit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from grpo_core.algorithms.schedules import linear_warmup
from grpo_core.config import TrainerConfig
from grpo_core.training.algorithm import Algorithm

TICKS = 10**6
"""Parts of a time limit that stand for steps where a schedule follows the time: finer than any step."""


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
    def of(cls, algorithm: Algorithm, total_updates: int | None) -> LearningRateSchedule:
        """The schedule that a configuration names."""
        config, schedule = algorithm.config, algorithm.schedule
        takes_warmup = "warmup_steps" in schedule.arguments
        return cls(schedule.function, takes_warmup, total_updates, config.warmup_steps, config.warmup_ratio)

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
        return factor * linear_warmup(update, self.warmup_steps) if self.takes_warmup else factor

    def _at(self, step: int, total: int, warmup: int) -> float:
        options = {"warmup_steps": warmup} if self.takes_warmup else {}
        return float(self.function(step, total, **options))


def follows_time(config: TrainerConfig, schedule_steps: int | None) -> bool:
    """Whether the learning rate depends on the clock."""
    varies = config.lr_scheduler_type not in ("constant", "none") or bool(config.warmup_ratio)
    return schedule_steps is None and varies
