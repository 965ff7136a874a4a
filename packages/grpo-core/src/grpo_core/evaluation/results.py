"""Results of an evaluation: every completion, and the numbers of `summary.json` with their intervals."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple, Self

import numpy as np

from grpo_core.evaluation.intervals import RATE, UNBOUNDED, Bounds, bounds_in, difference_interval, mean_interval
from grpo_sdk.errors import UserError
from grpo_sdk.scoring.abstention import reason_head
from grpo_sdk.task.marks import first_thinking_end
from grpo_sdk.task.row import Row, Split
from grpo_sdk.task.score import Score, tool_seconds

MAX_LEVELS = 12
"""More different difficulties than these are reported in quartiles."""

COLUMNS = ("texts", "lengths", "truncated", "scores", "certainty", "think_lengths")
"""Fields of an `Evaluation` with something of each completion, of which the last two may be empty."""

QUARTILES = (0.25, 0.5, 0.75)

_ENDS = {"low": "ci_low", "high": "ci_high"}


class TokenStatistics(NamedTuple):
    """Statistics of one number over the tokens of a completion, in nats."""

    mean: float
    std: float
    max: float
    p95: float

    @classmethod
    def of(cls, values: np.ndarray[tuple[int], np.dtype[np.floating]]) -> Self:
        """Statistics of [T] numbers, T at least 1; the standard deviation is the population's."""
        return cls(float(values.mean()), float(values.std()), float(values.max()), float(np.percentile(values, 95)))

    @classmethod
    def over(cls, completions: Sequence[Self]) -> Self:
        """Statistics over completions: the largest maximum, and means of the rest."""
        mean, std, largest, p95 = zip(*completions, strict=True)
        return cls(float(np.mean(mean)), float(np.mean(std)), max(largest), float(np.mean(p95)))


class Certainty(NamedTuple):
    """Surprisal and entropy of one completion.

    Attributes:
        surprisal: −log π of each token, at temperature 1: what was sampled otherwise is measured likewise.
        entropy: −Σ_v π_v log π_v of each position, over the whole vocabulary, at temperature 1.
    """

    surprisal: TokenStatistics
    entropy: TokenStatistics

    @classmethod
    def of(cls, tokens: Sequence[tuple[float, float]]) -> Self:
        """From surprisal and entropy of each token, at least one."""
        return cls(*map(TokenStatistics.of, np.array(tokens).T))


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Results of one task on its held-out rows: `n` completions a row, those of a row side by side.

    Attributes:
        rows: [R].
        texts: [R·n].
        lengths: [R·n] tokens; None where an endpoint does not count them.
        truncated: [R·n] whether the length limit ended it.
        scores: [R·n].
        temperature: Sampling temperature; 0 is greedy.
        split: Split of the rows.
        n: Completions a row.
        top_p: Nucleus sampling.
        reward_bounds: Smallest and largest value that a completion may have.
        part_bounds: Reward function -> the same of its raw value.
        certainty: [R·n] surprisal and entropy, where they were measured.
        think_lengths: [R·n] tokens before `</think>`; None where there is no such tag or they are not known.
        seconds: Duration.
        peak_memory_mib: Most memory of the process or the accelerator up to its end.
    """

    rows: Sequence[Row]
    texts: Sequence[str]
    lengths: Sequence[int | None]
    truncated: Sequence[bool]
    scores: Sequence[Score]
    temperature: float
    split: Split
    n: int = 1
    top_p: float = 1.0
    reward_bounds: Bounds = UNBOUNDED
    part_bounds: Mapping[str, Bounds] = field(default_factory=dict)
    certainty: Sequence[Certainty | None] = ()
    think_lengths: Sequence[int | None] = ()
    seconds: float = 0.0
    peak_memory_mib: float = 0.0

    def summary(self) -> dict[str, Any]:
        """The entry of `summary.json`, equal for equal completions.

        Abstained completions are counted apart and leave every rate; a row's value is the mean over its completions,
        and rows are what an interval counts.
        """
        scored = [score for score in self.scores if not score.abstained]
        solved = self._shares(lambda score: score.solved)
        reward = self._over_rows(lambda score: score.value)
        result: dict[str, Any] = {
            **mean_interval(solved, RATE).as_json("solved_rate", **_ENDS),
            "n": sum(not math.isnan(share) for share in solved),
            "abstained": len(self.scores) - len(scored),
            "completions_per_row": self.n,
            **self._pass_at(),
            **mean_interval(reward, self.reward_bounds).as_json("mean_reward"),
            "reward_bounds": [_finite(end) for end in self.reward_bounds],
            "parts": self._parts(),
            **mean_interval(self._shares(lambda score: score.valid), RATE).as_json("valid_rate"),
            **_lengths(self.lengths),
            **mean_interval(self._by_row(self.truncated), RATE).as_json("truncated_frac"),
            **self._thinking(),
            "temperature": self.temperature,
            "top_p": self.top_p,
            "split": self.split,
        }
        if any(self.certainty):
            result |= {name: self._certainty(name) for name in ("surprisal", "entropy")}
        levels = self.levels()
        if len(levels) > 1:
            result["by_difficulty"] = {name: self.part_of(index)._brief() for name, index in levels.items()}
        return result

    def timing(self) -> dict[str, float]:
        """Throughput and memory: the numbers that differ between equal evaluations."""
        tokens = sum(length or 0 for length in self.lengths)
        per_second = 1 / self.seconds if self.seconds > 0 else 0.0
        return {
            "seconds": self.seconds,
            "samples_per_s": len(self.texts) * per_second,
            "tokens_per_s": tokens * per_second,
            "peak_memory_mib": self.peak_memory_mib,
            **({"tools_s": sum(ran)} if (ran := tool_seconds(self.scores)) else {}),
        }

    def rates(self) -> RowRates:
        """The rates of each row, for a paired comparison."""
        return RowRates(
            tuple(row.id for row in self.rows),
            tuple(_known(share) for share in self._shares(lambda score: score.solved)),
            tuple(_known(value) for value in self._over_rows(lambda score: score.value)),
            self.reward_bounds,
        )

    def paired_delta(self, base: Evaluation | RowRates) -> dict[str, Any]:
        """Difference over `base` on the same rows, with its interval; see `RowRates.paired_delta`."""
        return self.rates().paired_delta(base.rates() if isinstance(base, Evaluation) else base)

    def unscored(self, label: str) -> list[str]:
        """A warning for each kind of reason for which completions abstained, and one where pass@k lacks rows for that.

        Args:
            label: Task label.
        """
        counts: dict[str, int] = {}
        first: dict[str, str] = {}
        for score in self.scores:
            if score.abstained:
                why = first.setdefault(reason_head(score.why), f"({score.fault}) {score.why}")
                counts[why] = counts.get(why, 0) + 1
        of = f"of {len(self.scores)} completions were not scored"
        warnings = [f"{label}: {count} {of}: {why}" for why, count in counts.items()]
        largest, scored = max(self.ks()), [count for count, _ in self.counts()]
        rows, whole = sum(count > 0 for count in scored), sum(count >= largest for count in scored)
        if whole < rows:
            warnings.append(
                f"{label}: pass@{largest} is of {whole} rows and the solved rate of {rows}: in the others, fewer than "
                f"{largest} completions were scored, so the rates cannot be compared"
            )
        return warnings

    def part_of(self, rows: Sequence[int]) -> Evaluation:
        """The evaluation of some of the rows, by index."""
        at = [row * self.n + sample for row in rows for sample in range(self.n)]
        columns: dict[str, Any] = {
            name: [column[index] for index in at] for name in COLUMNS if (column := getattr(self, name))
        }
        return replace(self, rows=[self.rows[row] for row in rows], **columns)

    def counts(self) -> list[tuple[int, int]]:
        """[R] of each row: completions scored, and how many of them are solved."""
        return [
            (sum(not score.abstained for score in scores), sum(score.solved for score in scores))
            for scores in self.scores_by_row()
        ]

    def pass_at(self, k: int) -> list[float]:
        """[R] unbiased pass@k of each row; NaN where fewer than k completions were scored."""
        return [pass_at_k(n, solved, k) if n >= k else math.nan for n, solved in self.counts()]

    def part_names(self) -> list[str]:
        """Reward functions, in the order in which they are met."""
        return list(dict.fromkeys(name for score in self.scores for name in score.parts))

    def part(self, name: str) -> list[float]:
        """[R] mean raw value of a reward function."""
        return self._over_rows(lambda score: score.parts.get(name))

    def ks(self) -> list[int]:
        """1, 2, 4, 8 … up to n."""
        return [2**power for power in range(self.n.bit_length()) if 2**power <= self.n]

    def _pass_at(self) -> dict[str, float | None]:
        """Each rate with its rows: completions without a score leave fewer rows for a larger k, often the easy ones."""
        rates: dict[str, float | None] = {}
        for k in self.ks() if self.n > 1 else ():
            rate = mean_interval(self.pass_at(k), RATE)
            rates |= {**rate.as_json(f"pass@{k}"), f"pass@{k}_n": rate.n}
        return rates

    def _parts(self) -> dict[str, dict[str, float | None]]:
        return {
            name: mean_interval(self.part(name), self.part_bounds.get(name, RATE)).as_json("mean", **_ENDS)
            for name in self.part_names()
        }

    def _thinking(self) -> dict[str, float | None]:
        """How often and how long the completions think, if any does."""
        thinks = [float(first_thinking_end(text) is not None) for text in self.texts]
        if not any(thinks):
            return {}
        known = [length for length in self.think_lengths if length is not None]
        return {
            **mean_interval(self._by_row(thinks), RATE).as_json("think_rate"),
            "think_length": float(np.mean(known)) if known else None,
        }

    def _certainty(self, name: str) -> dict[str, float | None]:
        """Means over completions, those of a row first; `mean` with its interval."""
        measured = [None if pair is None else getattr(pair, name) for pair in self.certainty]
        means = self._by_row([math.nan if numbers is None else numbers.mean for numbers in measured])
        known = TokenStatistics.over([numbers for numbers in measured if numbers is not None])
        interval = mean_interval(means, (0.0, math.inf)).as_json("mean", **_ENDS)
        return {**interval, "std": known.std, "max": known.max, "p95": known.p95}

    def _brief(self) -> dict[str, Any]:
        """The numbers of a level of difficulty."""
        solved = self._shares(lambda score: score.solved)
        return {
            **mean_interval(solved, RATE).as_json("solved_rate", **_ENDS),
            "n": sum(not math.isnan(share) for share in solved),
            **mean_interval(self._over_rows(lambda score: score.value), self.reward_bounds).as_json("mean_reward"),
        }

    def levels(self) -> dict[str, list[int]]:
        """Rows by difficulty, the easiest first: each value, or quartiles where there are many."""
        known = {index: row.difficulty for index, row in enumerate(self.rows) if row.difficulty is not None}
        values = sorted(set(known.values()))
        names = _distinct_names(values)
        if len(values) <= MAX_LEVELS:
            return {names[value]: [index for index in known if known[index] == value] for value in values}
        edges = np.quantile(list(known.values()), QUARTILES)
        quartile = {index: int(np.searchsorted(edges, value)) for index, value in known.items()}
        levels = {}
        for number in range(len(edges) + 1):
            members = [index for index in known if quartile[index] == number]
            if members:
                low, high = min(known[index] for index in members), max(known[index] for index in members)
                levels[f"{names[low]} to {names[high]}"] = members
        return levels

    def _shares(self, is_so: Callable[[Score], bool]) -> list[float]:
        return self._over_rows(lambda score: float(is_so(score)))

    def _over_rows(self, value: Callable[[Score], float | None]) -> list[float]:
        """[R] means over the scored completions of each row."""
        means = []
        for scores in self.scores_by_row():
            values = [value(score) for score in scores if not score.abstained]
            known = [number for number in values if number is not None]
            means.append(sum(known) / len(known) if known else math.nan)
        return means

    def _by_row(self, values: Sequence[float]) -> list[float]:
        """[R] means of [R·n] values."""
        return [sum(values[start : start + self.n]) / self.n for start in range(0, len(self.rows) * self.n, self.n)]

    def scores_by_row(self) -> list[Sequence[Score]]:
        """[R] the scores of each row's completions."""
        return [self.scores[start : start + self.n] for start in range(0, len(self.rows) * self.n, self.n)]


@dataclass(frozen=True, slots=True)
class RowRates:
    """Rates of each row of an evaluation, with which a later one is compared.

    Attributes:
        ids: [R] ids of the rows.
        solved: [R] share of the row's completions that are solved; None where none was scored.
        reward: [R] mean reward of the row's completions; None where none was scored.
        reward_bounds: Smallest and largest reward.
    """

    ids: tuple[str, ...]
    solved: tuple[float | None, ...]
    reward: tuple[float | None, ...] = field(default=())
    reward_bounds: Bounds = UNBOUNDED

    def as_json(self) -> dict[str, Any]:
        """Convert to JSON, for `from_json`."""
        return {**asdict(self), "reward_bounds": [_finite(end) for end in self.reward_bounds]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RowRates:
        """Read the result of `as_json`."""
        return cls(tuple(data["ids"]), tuple(data["solved"]), tuple(data["reward"]), bounds_in(data))

    def paired_delta(self, base: RowRates) -> dict[str, Any]:
        """Mean difference over `base`, row by row, of the solved rate (`delta`) and the reward (`reward_delta`).

        Returns:
            Each with its interval (`difference_interval`); `delta_n` rows that both have. None where
            there is no such row.
        """
        before = {row: index for index, row in enumerate(base.ids)}
        pairs = [(index, before[row]) for index, row in enumerate(self.ids) if row in before]
        solved = [_minus(self.solved[index], base.solved[other]) for index, other in pairs]
        reward = [_minus(self.reward[index], base.reward[other]) for index, other in pairs]
        delta = difference_interval(solved, RATE)
        return {
            **delta.as_json("delta"),
            "delta_n": delta.n,
            **difference_interval(reward, self.reward_bounds).as_json("reward_delta"),
        }


def pass_at_k(n: int, c: int, k: int) -> float:
    """Chance that one of k completions is right, drawn without replacement from n of which c are: unbiased.

    1 − C(n − c, k) / C(n, k) = 1 − Π_{i = n−c+1}^{n} (1 − k / i); source: arXiv 2107.03374, section 2.1.

    Args:
        n: Completions.
        c: Right ones.
        k: Draws.

    Raises:
        UserError: unless 0 <= c <= n and 1 <= k <= n.
    """
    if not (0 <= c <= n and 1 <= k <= n):
        raise UserError(f"pass@k of n={n}, c={c}, k={k}: needs 0 <= c <= n and 1 <= k <= n; draw n >= k completions.")
    if n - c < k:
        return 1.0
    return 0.0 - math.expm1(math.fsum(math.log1p(-k / i) for i in range(n - c + 1, n + 1)))


def _distinct_names(values: Sequence[float]) -> dict[float, str]:
    """Short names of different numbers; whole ones where two would have the same six digits."""
    counts = Counter(f"{value:g}" for value in values)
    return {value: f"{value:g}" if counts[f"{value:g}"] == 1 else repr(value) for value in values}


def _minus(value: float | None, base: float | None) -> float:
    return math.nan if value is None or base is None else value - base


def _known(value: float) -> float | None:
    """JSON has no NaN."""
    return None if math.isnan(value) else value


def _finite(bound: float) -> float | None:
    return bound if math.isfinite(bound) else None


def _lengths(lengths: Sequence[int | None]) -> dict[str, float | None]:
    known = np.asarray([length for length in lengths if length is not None], dtype=np.float64)
    if not len(known):
        return dict.fromkeys(("mean_length", "std_length", "min_length", "max_length"))
    return {
        "mean_length": float(known.mean()),
        "std_length": float(known.std()),
        "min_length": float(known.min()),
        "max_length": float(known.max()),
    }
