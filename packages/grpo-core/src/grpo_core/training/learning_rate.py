"""The learning rate of a run: a schedule over its planned steps, or over its time limit."""

from __future__ import annotations

from grpo_core.algorithms.schedules import linear_warmup
from grpo_core.config import TrainerConfig
from grpo_core.training.algorithm import Algorithm

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
        ratio = self._warmup_ratio
        if self._total is not None:
            return self._at(update, self._total, self._warmup_steps if ratio is None else round(ratio * self._total))
        # A warm-up in steps goes by steps also here, on top of what follows the time.
        factor = self._at(min(TICKS, int(TICKS * time_share)), TICKS, round(TICKS * (ratio or 0.0)))
        return factor * linear_warmup(update, self._warmup_steps) if self._takes_warmup else factor

    def _at(self, step: int, total: int, warmup: int) -> float:
        options = {"warmup_steps": warmup} if self._takes_warmup else {}
        return float(self._function(step, total, **options))


def follows_time(config: TrainerConfig, schedule_steps: int | None) -> bool:
    """Whether the learning rate depends on the clock."""
    varies = config.lr_scheduler_type not in ("constant", "none") or bool(config.warmup_ratio)
    return schedule_steps is None and varies
