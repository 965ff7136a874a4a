"""Predicts from samples of a model how much of a task's groups would teach it something."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from grpo_core.evaluation.intervals import Interval, bootstrap_mean, rate_over_rows
from grpo_core.evaluation.results import Evaluation

ENOUGH = 0.8
"""Share of the useful groups of the largest measured size that the recommended size must keep: more completions per
prompt cost their full price and add ever fewer useful groups."""

EASY, HARD = 0.8, 0.2
"""Solved rates above and below which a task is too easy or too hard, as for the monitor of a run."""

BINS = ((0.0, 0.0), (0.0, 0.2), (0.2, 0.4), (0.4, 0.6), (0.6, 0.8), (0.8, 1.0), (1.0, 1.0))
"""Bins of the solved rate of a prompt: never, always, and fifths between, each with its lower end except 0 and 1."""


@dataclass(frozen=True, slots=True)
class Times:
    """Measured seconds per completion.

    Attributes:
        sampling: Sampling with scoring, over all completions.
        update: A forward and a backward pass; None where it was not measured.
        measured: Completions that the update was measured on.
    """

    sampling: float
    update: float | None = None
    measured: int = 0

    @property
    def total(self) -> float:
        """Seconds per completion of a step."""
        return self.sampling + (self.update or 0.0)


@dataclass(frozen=True, slots=True)
class GroupSize:
    """What groups of one size would give.

    Attributes:
        generations: Completions per prompt.
        no_signal: Share of groups whose rewards are all equal.
        pass_at: pass@k for k = `generations`.
        useful_per_hour: Groups with a signal per hour of sampling, scoring and updates. Its interval is that of the
            share; the times are measured once.
    """

    generations: int
    no_signal: Interval
    pass_at: Interval
    useful_per_hour: Interval

    @property
    def useful(self) -> float:
        """Share of groups with a signal."""
        return 1.0 - self.no_signal.value


@dataclass(frozen=True, slots=True)
class Level:
    """Prompts of one difficulty.

    Attributes:
        name: The difficulty, or a range of it.
        prompts: Number of prompts.
        solved: Solved rate.
        no_signal: Share of groups of the run's size whose rewards are all equal.
    """

    name: str
    prompts: int
    solved: Interval
    no_signal: Interval


@dataclass(frozen=True, slots=True)
class Forecast:
    """Forecast of one task.

    Attributes:
        prompts: Prompts that were sampled.
        samples: Completions of each.
        generations: Completions per prompt of the run.
        abstained: Completions that could not be scored.
        solved: Solved rate.
        reward: Mean reward.
        histogram: Number of prompts in each of `BINS`.
        sizes: Forecasts by size of the groups, ascending; the run's own size is among them.
        levels: Forecasts by difficulty, where rows have several.
        times: Measured seconds.
    """

    prompts: int
    samples: int
    generations: int
    abstained: int
    solved: Interval
    reward: Interval
    histogram: tuple[int, ...]
    sizes: tuple[GroupSize, ...]
    levels: tuple[Level, ...]
    times: Times

    @property
    def own_size(self) -> GroupSize:
        """The forecast for groups of the run's size."""
        return next(size for size in self.sizes if size.generations == self.generations)

    @property
    def recommended(self) -> GroupSize | None:
        """The smallest groups that keep `ENOUGH` of the largest size's useful ones; None where none has a signal."""
        largest = self.sizes[-1].useful
        return next((size for size in self.sizes if size.useful >= ENOUGH * largest), None) if largest > 0 else None

    @property
    def best_levels(self) -> tuple[Level, ...]:
        """Difficulties with at least `ENOUGH` of the useful groups of the best one; empty where none has a signal."""
        best = max((1.0 - level.no_signal.value for level in self.levels), default=0.0)
        return tuple(level for level in self.levels if best > 0 and 1.0 - level.no_signal.value >= ENOUGH * best)

    def as_json(self) -> dict[str, Any]:
        """The forecast as plain values; a number that is unknown is None."""
        recommended = self.recommended
        return {
            "prompts": self.prompts,
            "samples": self.samples,
            "generations": self.generations,
            "abstained": self.abstained,
            "solved_rate": _plain(self.solved),
            "mean_reward": _plain(self.reward),
            "solved_histogram": [
                {"from": low, "to": high, "prompts": number}
                for (low, high), number in zip(BINS, self.histogram, strict=True)
            ],
            "by_generations": [
                {
                    "generations": size.generations,
                    "no_signal": _plain(size.no_signal),
                    "pass_at_k": _plain(size.pass_at),
                    "useful_groups_per_hour": _plain(size.useful_per_hour),
                }
                for size in self.sizes
            ],
            "by_difficulty": [
                {
                    "difficulty": level.name,
                    "prompts": level.prompts,
                    "solved_rate": _plain(level.solved),
                    "no_signal": _plain(level.no_signal),
                }
                for level in self.levels
            ],
            "recommended_generations": None if recommended is None else recommended.generations,
            "recommended_difficulty": [level.name for level in self.best_levels],
            "sampling_s": self.times.sampling,
            "update_s": self.times.update,
        }


def forecast(evaluation: Evaluation, generations: int, times: Times, *, seed: int = 0) -> Forecast:
    """Forecast from the completions of an evaluation.

    Args:
        evaluation: Several completions of each prompt, sampled as the run would.
        generations: Completions per prompt of the run, at most those of the evaluation.
        times: Measured seconds.
        seed: Seed of the bootstrap.
    """
    sizes = sorted(
        {*(2**power for power in range(1, evaluation.n.bit_length()) if 2**power <= evaluation.n), generations}
    )
    levels = evaluation.levels()
    solved = _solved_rates(evaluation)
    return Forecast(
        prompts=len(evaluation.rows),
        samples=evaluation.n,
        generations=generations,
        abstained=sum(score.abstained for score in evaluation.scores),
        solved=rate_over_rows(solved, seed=seed),
        reward=bootstrap_mean(_mean_rewards(evaluation), seed=seed),
        histogram=_histogram(solved),
        sizes=tuple(_size(evaluation, size, times, seed) for size in sizes),
        levels=tuple(
            _level(name, evaluation.part_of(rows), generations, seed)
            for name, rows in levels.items()
            if len(levels) > 1
        ),
        times=times,
    )


def no_signal(rewards: Sequence[float], generations: int) -> float:
    """Chance that `generations` of these rewards, drawn without replacement, are all equal: unbiased.

    Σ over distinct values C(count, G) / C(n, G); NaN where there are fewer than G rewards.
    """
    if len(rewards) < generations:
        return math.nan
    equal = sum(math.comb(count, generations) for count in Counter(rewards).values())
    return equal / math.comb(len(rewards), generations)


def _rewards(evaluation: Evaluation) -> list[list[float]]:
    return [[score.value for score in scores if score.value is not None] for scores in evaluation.scores_by_row()]


def _mean_rewards(evaluation: Evaluation) -> list[float]:
    return [sum(rewards) / len(rewards) if rewards else math.nan for rewards in _rewards(evaluation)]


def _solved_rates(evaluation: Evaluation) -> list[float]:
    return [solved / scored if scored else math.nan for scored, solved in evaluation.counts()]


def _size(evaluation: Evaluation, generations: int, times: Times, seed: int) -> GroupSize:
    share = rate_over_rows([no_signal(rewards, generations) for rewards in _rewards(evaluation)], seed=seed)
    per_hour = 3600 / (generations * times.total) if times.total > 0 else math.nan
    useful, least, most = (per_hour * (1.0 - end) for end in (share.value, share.high, share.low))
    pass_at = rate_over_rows(evaluation.pass_at(generations), seed=seed)
    return GroupSize(generations, share, pass_at, Interval(useful, least, most, share.n))


def _level(name: str, evaluation: Evaluation, generations: int, seed: int) -> Level:
    share = rate_over_rows([no_signal(rewards, generations) for rewards in _rewards(evaluation)], seed=seed)
    return Level(name, len(evaluation.rows), rate_over_rows(_solved_rates(evaluation), seed=seed), share)


def _histogram(rates: Sequence[float]) -> tuple[int, ...]:
    counts = [0] * len(BINS)
    for rate in rates:
        if not math.isnan(rate):
            place = 0 if rate == 0 else len(BINS) - 1 if rate == 1 else 1 + min(4, int(rate * 5))
            counts[place] += 1
    return tuple(counts)


def _plain(interval: Interval) -> dict[str, float | None]:
    values = {"value": interval.value, "ci_low": interval.low, "ci_high": interval.high}
    return {name: None if math.isnan(value) else value for name, value in values.items()}
