"""Predicts from samples of a model how much of a task's groups would teach it something."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grpo_core.evaluation.intervals import RATE, mean_interval
from grpo_core.evaluation.results import Evaluation
from grpo_sdk.intervals import Interval

ENOUGH = 0.8
"""Share of the useful groups of the largest measured size that the recommended size must keep: more completions per
prompt cost their full price and add ever fewer useful groups."""

EASY, HARD = 0.8, 0.2
"""Solved rates above and below which a task is too easy or too hard, as for the monitor of a run."""

BINS = ((0.0, 0.0), (0.0, 0.2), (0.2, 0.4), (0.4, 0.6), (0.6, 0.8), (0.8, 1.0), (1.0, 1.0))
"""Bins of the solved rate of a prompt: never, always, and fifths between, each with its lower end except 0 and 1."""

EQUAL = 1e-9
"""Rewards that differ by no more are equal: sums of the same parts, up to rounding."""


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

    @classmethod
    def of(cls, generations: int, no_signal: Interval, pass_at: Interval, times: Times) -> GroupSize:
        """What groups give that take these times."""
        per_hour = 3600 / (generations * times.total) if times.total > 0 else math.nan
        useful, least, most = (per_hour * (1.0 - end) for end in (no_signal.value, no_signal.high, no_signal.low))
        return cls(generations, no_signal, pass_at, Interval(useful, least, most, no_signal.n))

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What a run would see of a task, or of a mixture of several.

    Attributes:
        generations: Completions per prompt of the run.
        solved: Solved rate.
        reward: Mean reward.
        sizes: Forecasts by size of the groups, ascending; the run's own size is among them.
        times: Measured seconds; of a mixture, their mean.
    """

    generations: int
    solved: Interval
    reward: Interval
    sizes: tuple[GroupSize, ...]
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

    def as_json(self) -> dict[str, Any]:
        """The forecast as plain values; a number that is unknown is None."""
        recommended = self.recommended
        return {
            "generations": self.generations,
            "solved_rate": _plain(self.solved),
            "mean_reward": _plain(self.reward),
            "by_generations": [
                {
                    "generations": size.generations,
                    "no_signal": _plain(size.no_signal),
                    "pass_at_k": _plain(size.pass_at),
                    "useful_groups_per_hour": _plain(size.useful_per_hour),
                }
                for size in self.sizes
            ],
            "recommended_generations": None if recommended is None else recommended.generations,
            "sampling_s": self.times.sampling,
            "update_s": self.times.update,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskForecast(Forecast):
    """Forecast of one task.

    Attributes:
        prompts: Prompts that were sampled; in a game that the policy plays alone, sides of episodes.
        samples: Completions of each.
        abstained: Completions that could not be scored.
        histogram: Number of prompts in each of `BINS`.
        levels: Forecasts by difficulty, where rows have several.
    """

    prompts: int
    samples: int
    abstained: int
    histogram: tuple[int, ...]
    levels: tuple[Level, ...]

    @property
    def best_levels(self) -> tuple[Level, ...]:
        """Difficulties with at least `ENOUGH` of the useful groups of the best one; empty where none has a signal."""
        best = max((1.0 - level.no_signal.value for level in self.levels), default=0.0)
        return tuple(level for level in self.levels if best > 0 and 1.0 - level.no_signal.value >= ENOUGH * best)

    def as_json(self) -> dict[str, Any]:
        """The forecast as plain values; a number that is unknown is None."""
        bins = [{"from": low, "to": high, "prompts": n} for (low, high), n in zip(BINS, self.histogram, strict=True)]
        levels = [
            {
                "difficulty": level.name,
                "prompts": level.prompts,
                "solved_rate": _plain(level.solved),
                "no_signal": _plain(level.no_signal),
            }
            for level in self.levels
        ]
        return {
            "prompts": self.prompts,
            "samples": self.samples,
            "abstained": self.abstained,
            **Forecast.as_json(self),
            "solved_histogram": bins,
            "by_difficulty": levels,
            "recommended_difficulty": [level.name for level in self.best_levels],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureForecast(Forecast):
    """Forecast of several tasks, drawn by their weights.

    Attributes:
        tasks: Label -> forecast of the task.
        shares: Label -> share of the prompts.
    """

    tasks: Mapping[str, TaskForecast]
    shares: Mapping[str, float]

    def as_json(self) -> dict[str, Any]:
        """The forecast as plain values; a number that is unknown is None."""
        tasks = {label: {"share": self.shares[label], **each.as_json()} for label, each in self.tasks.items()}
        return {**Forecast.as_json(self), "tasks": tasks}


Groups = Mapping[int, Sequence[Sequence[Sequence[float]]]]
"""Size -> for each prompt, the rewards of the groups that its completions were split into, without what abstained."""


def group_sizes(samples: int, generations: int) -> list[int]:
    """The sizes of groups that are forecast: powers of 2 up to the number of samples, and the run's own."""
    return sorted({*(2**power for power in range(1, samples.bit_length()) if 2**power <= samples), generations})


def forecast(evaluation: Evaluation, generations: int, times: Times, *, groups: Groups | None = None) -> TaskForecast:
    """Forecast from several completions of each prompt, sampled as the run would.

    Args:
        evaluation: The completions with their rewards.
        generations: Completions per prompt of the run, at most those of the evaluation.
        times: Measured seconds.
        groups: Rewards within groups of every size, for a task whose rewards depend on the group.
    """
    rewards = [[score.value for score in scores if score.value is not None] for scores in evaluation.scores_by_row()]
    solved = [solved / scored if scored else math.nan for scored, solved in evaluation.counts()]
    if groups is None:
        silent = {size: [no_signal(each, size) for each in rewards] for size in group_sizes(evaluation.n, generations)}
    else:
        silent = {size: [_silent_share(split) for split in splits] for size, splits in groups.items()}
        rewards = [[reward for group in split for reward in group] for split in groups[generations]]

    def of_prompts(values: Sequence[float]) -> list[float]:
        """Average the values of rows over those of one prompt: the sides of an episode are no two."""
        known: dict[str, list[float]] = {row.id: [] for row in evaluation.rows}
        for row, value in zip(evaluation.rows, values, strict=True):
            if not math.isnan(value):
                known[row.id].append(value)
        return [_mean(each) for each in known.values()]

    def rate(values: Sequence[float]) -> Interval:
        return mean_interval(of_prompts(values), RATE)

    levels = evaluation.levels() if len(evaluation.levels()) > 1 else {}
    own = silent[generations]
    return TaskForecast(
        generations=generations,
        solved=rate(solved),
        reward=mean_interval(of_prompts([_mean(each) for each in rewards]), evaluation.reward_bounds),
        sizes=tuple(
            GroupSize.of(size, rate(shares), rate(evaluation.pass_at(size)), times) for size, shares in silent.items()
        ),
        times=times,
        prompts=len(evaluation.rows),
        samples=evaluation.n,
        abstained=sum(score.abstained for score in evaluation.scores),
        histogram=_histogram(solved),
        levels=tuple(
            Level(name, len(rows), *(mean_interval([each[row] for row in rows], RATE) for each in (solved, own)))
            for name, rows in levels.items()
        ),
    )


def mixture_forecast(tasks: Mapping[str, TaskForecast], weights: Mapping[str, float]) -> MixtureForecast:
    """Forecast of a mixture from those of its tasks.

    Args:
        tasks: Label -> forecast, all of the same sizes.
        weights: Label -> weight.
    """
    each = list(tasks.values())
    total = math.fsum(weights[label] for label in tasks)
    parts = [weights[label] / total for label in tasks]
    updates = [one.times.update for one in each if one.times.update is not None]
    times = Times(
        sampling=_dot(parts, [one.times.sampling for one in each]),
        update=_dot(parts, updates) if len(updates) == len(each) else None,
        measured=sum(one.times.measured for one in each),
    )
    return MixtureForecast(
        generations=each[0].generations,
        solved=_combined(parts, [one.solved for one in each]),
        reward=_combined(parts, [one.reward for one in each]),
        sizes=tuple(
            GroupSize.of(
                sizes[0].generations,
                _combined(parts, [size.no_signal for size in sizes]),
                _combined(parts, [size.pass_at for size in sizes]),
                times,
            )
            for sizes in zip(*(one.sizes for one in each), strict=True)
        ),
        times=times,
        tasks=dict(tasks),
        shares=dict(zip(tasks, parts, strict=True)),
    )


def _dot(parts: Sequence[float], values: Sequence[float]) -> float:
    return math.fsum(part * value for part, value in zip(parts, values, strict=True))


def _combined(parts: Sequence[float], estimates: Sequence[Interval]) -> Interval:
    """Weighted mean of independent estimates, with the interval of Zou and Donner 2008 (Statistics in Medicine 27).

    low = v - √Σ p² (vᵢ - lowᵢ)², high = v + √Σ p² (highᵢ - vᵢ)²
    """
    value = _dot(parts, [one.value for one in estimates])
    below = math.hypot(*(part * (one.value - one.low) for part, one in zip(parts, estimates, strict=True)))
    above = math.hypot(*(part * (one.high - one.value) for part, one in zip(parts, estimates, strict=True)))
    return Interval(value, value - below, value + above, sum(one.n for one in estimates))


def no_signal(rewards: Sequence[float], generations: int) -> float:
    """Chance that `generations` of these rewards, drawn without replacement, are all equal: unbiased.

    Σ over distinct values C(count, G) / C(n, G); NaN where there are fewer than G rewards.
    """
    if len(rewards) < generations:
        return math.nan
    equal = sum(math.comb(count, generations) for count in Counter(rewards).values())
    return equal / math.comb(len(rewards), generations)


def _silent_share(split: Sequence[Sequence[float]]) -> float:
    """Share of groups of equal rewards; sums of parts are equal up to rounding. NaN where nothing was scored."""
    scored = [rewards for rewards in split if rewards]
    return sum(max(rewards) - min(rewards) <= EQUAL for rewards in scored) / len(scored) if scored else math.nan


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan


def _histogram(rates: Sequence[float]) -> tuple[int, ...]:
    counts = [0] * len(BINS)
    for rate in rates:
        if not math.isnan(rate):
            place = 0 if rate == 0 else len(BINS) - 1 if rate == 1 else 1 + min(4, int(rate * 5))
            counts[place] += 1
    return tuple(counts)


def _plain(interval: Interval) -> dict[str, float | None]:
    return interval.as_json("value", low="ci_low", high="ci_high")
