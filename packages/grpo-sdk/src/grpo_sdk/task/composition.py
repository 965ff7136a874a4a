"""Composition of the parts of a reward into one number: the `reward` mark and the composers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from typing import Any, Literal, Protocol, TypeVar, get_args

from grpo_sdk.errors import UserError, near_match
from grpo_sdk.task.calling import BOUNDS, check_mark, in_bounds, known_arguments, name_of

RewardFunction = TypeVar("RewardFunction", bound=Callable[..., float])
Shaping = Literal["graduated", "linear", "binary", "continuous"]
"""How a quality in [0, 1] becomes a reward; see `shape`."""

REWARD_ARGUMENTS = ("answer", "row", "text", "config", "predictions", "calls", "environment")
"""Names of the arguments that a reward function may take."""


@dataclass(frozen=True, slots=True)
class RewardSpec:
    """One reward function with its mark, `@reward` or `@group_reward`.

    Attributes:
        name: The function's name; the key in `Score.parts`.
        function: The plain function.
        weight: Factor of the raw part in the composed value, or of what is added to it for a group reward; 0 records a
            fact beside it.
        needs: Name of an earlier reward that must reach its maximum before this one is asked.
        maximum: Largest raw value; the gold completion reaches it.
        arguments: The names among `REWARD_ARGUMENTS` or `GROUP_ARGUMENTS` that the function takes.
    """

    name: str
    function: Callable[..., Any]
    weight: float
    needs: str | None
    maximum: float
    arguments: tuple[str, ...]

    @property
    def is_fact(self) -> bool:
        """Whether this part is only recorded: of weight 0, any value, and no say in value or `solved`."""
        return self.weight == 0

    @property
    def is_penalty(self) -> bool:
        """Whether this part can only take away; penalties do not decide `solved`."""
        return self.weight < 0 or (self.weight > 0 and self.maximum <= 0)

    @property
    def is_criterion(self) -> bool:
        """Whether this part can be earned: what composers measure and `solved` asks for."""
        return self.weight > 0 and self.maximum > 0

    def reached_by(self, raw: float) -> bool:
        """Whether `raw` is this part's maximum, up to float rounding."""
        return raw >= self.maximum - 1e-9 * max(1.0, abs(self.maximum))


def reward(
    weight: float = 1.0, *, needs: str | None = None, maximum: float = 1.0
) -> Callable[[RewardFunction], RewardFunction]:
    """Mark a plain function as a reward; it stays a plain function.

    Args:
        weight: Factor of the raw value; negative for a penalty that returns positive amounts. 0 is for a fact that
            `Task.metrics` or a reader of the logs wants in `Score.parts`: any number of at most 1e30.
        needs: Name of an earlier reward: this one is 0 until that one reaches its maximum.
        maximum: Largest raw value the function returns; 0 for a penalty that returns 0 or less.

    Raises:
        UserError: a weight or maximum that is no number within `LARGEST_REWARD`, or a function that is marked already.
    """
    check_mark("reward", weight, maximum)

    def mark(function: RewardFunction) -> RewardFunction:
        marked = (float(weight), needs, float(maximum))
        # The mark lives on the function: a second one would change the reward of whichever task gave the first.
        if getattr(function, "_grpo_reward", marked) != marked:
            raise UserError(
                f"{name_of(function)}() is marked with another @reward already; give this task a function of its own "
                "that calls it."
            )
        function._grpo_reward = marked  # type: ignore[attr-defined] # functions take attributes
        return function

    return mark


def reward_specs(task: str, functions: Sequence[Callable[..., float]]) -> tuple[RewardSpec, ...]:
    """Read the marks of a task's reward functions, in order.

    Raises:
        UserError: no reward, a duplicate name, an argument that does not exist, or a `needs` that names no earlier
            reward; each names the task and the function.
    """
    if not functions:
        raise UserError(
            f"task {task!r} has no rewards; give at least one function marked with @reward (@reward(0) only records)."
        )
    specs: list[RewardSpec] = []
    for function in functions:
        if not callable(function):
            raise UserError(f"task {task!r}: {function!r:.40} among its rewards must be a function.")
        name = name_of(function)
        weight, needs, maximum = getattr(function, "_grpo_reward", (1.0, None, 1.0))
        arguments = known_arguments(f"task {task!r}: reward {name}()", function, REWARD_ARGUMENTS)
        earlier = [spec.name for spec in specs]
        if name in earlier:
            hint = " Write a def with @reward() in place of a lambda." if name == "<lambda>" else ""
            raise UserError(
                f"task {task!r} has two rewards named {name!r}; parts are kept by name, so rename one.{hint}"
            )
        if needs is not None and needs not in earlier:
            raise UserError(
                f"task {task!r}: reward {name}() needs {needs!r}, which is not an earlier reward "
                f"({', '.join(earlier) or 'it is the first'}).{near_match(needs, earlier)}"
            )
        specs.append(RewardSpec(name, function, weight, needs, maximum, arguments))
    return tuple(specs)


class Composer(Protocol):
    """Turns raw parts into a value."""

    def __call__(self, specs: Sequence[RewardSpec], parts: Mapping[str, float], valid: bool) -> float:
        """Return the value of `parts`; when not `valid`, only rewards that do not take `answer` have a part."""


@dataclass(frozen=True, slots=True)
class Composition:
    """How a composer arrives at a value, which is the base and the sum of the contributions.

    Attributes:
        rule: The composer's rule applied to the parts, in one line.
        base: Amount that no single part accounts for.
        contributions: Part -> amount; without the parts that only count together, in the base.
    """

    rule: str
    base: float
    contributions: dict[str, float]


def explain_composition(
    compose: Composer, specs: Sequence[RewardSpec], parts: Mapping[str, float], valid: bool
) -> Composition:
    """Split a value into the contributions of its parts; one by a composer of the task's own has none.

    Args:
        compose: The composer.
        specs: The task's rewards.
        parts: Raw value of each reward.
        valid: Whether the validator found an answer.
    """
    if isinstance(compose, _WeightedSum | _Graduated | _Ladder):
        return compose.explain(specs, parts, valid)
    return Composition(f"by the task's own {name_of(compose)}()", compose(specs, parts, valid), {})


def _weighted_parts(specs: Sequence[RewardSpec], parts: Mapping[str, float]) -> dict[str, float]:
    return {spec.name: spec.weight * parts[spec.name] for spec in specs}


def _weighted(specs: Sequence[RewardSpec], parts: Mapping[str, float]) -> float:
    return math.fsum(spec.weight * parts[spec.name] for spec in specs if spec.name in parts)


@dataclass(frozen=True, slots=True)
class _WeightedSum:
    invalid: float

    def __call__(self, specs: Sequence[RewardSpec], parts: Mapping[str, float], valid: bool) -> float:
        total = _weighted(specs, parts)
        return total if valid else self.invalid + total

    def explain(self, specs: Sequence[RewardSpec], parts: Mapping[str, float], valid: bool) -> Composition:
        facts = [spec for spec in specs if not spec.is_fact]
        return Composition("Σ weight · part", 0.0 if valid else self.invalid, _weighted_parts(facts, parts))


def weighted_sum(*, invalid: float = 0.0) -> Composer:
    """Compose Σ weight · raw part, not normalised.

    Args:
        invalid: Base value of a completion that the validator refused; rewards that do not take `answer` are added.

    Raises:
        UserError: `invalid` is no finite number.
    """
    _check_invalid(invalid)
    return _WeightedSum(invalid)


GRADUATED_LEVELS = (0.2, 0.4, 0.6, 0.8, 1.0)
"""Rewards of a valid completion, from the lowest quality to the highest (RookWorld's ladder)."""

GRADUATED_THRESHOLDS = (0.4, 0.6, 0.8, 0.95)
"""Quality at which each level after the first begins (RookWorld's ladder: 0.95 counts as complete)."""


def shape(
    quality: float,
    shaping: Shaping = "graduated",
    *,
    invalid: float = -0.3,
    levels: Sequence[float] = GRADUATED_LEVELS,
    thresholds: Sequence[float] = GRADUATED_THRESHOLDS,
    binary_from: float | None = None,
) -> float:
    """Shape a valid completion's quality in [0, 1] into a reward.

    `graduated`: levels[k], k = number of thresholds at or below the quality. `linear`: invalid + (1 − invalid)·quality.
    `binary`: 1 above one half, or from `binary_from`, else `invalid`. `continuous`: the quality itself.

    Args:
        quality: Share of the possible reward that was earned.
        shaping: Name of the shape.
        invalid: Value of an invalid completion.
        levels: Rewards of `graduated`, one more than there are thresholds.
        thresholds: Qualities at which the next level begins.
        binary_from: Lowest quality for which `binary` pays.

    Raises:
        UserError: an unknown shaping.
    """
    match shaping:
        case "graduated":
            # A tolerance, because qualities such as 0.1 + 0.2 + 0.3 must not miss 0.6 by one rounding.
            return levels[sum(quality >= threshold - 1e-9 for threshold in thresholds)]
        case "linear":
            return invalid + (1.0 - invalid) * quality
        case "binary":
            is_paid = quality > 0.5 if binary_from is None else quality >= binary_from - 1e-9
            return 1.0 if is_paid else invalid
        case "continuous":
            return quality
    allowed = get_args(Shaping)
    raise UserError(f"shaping {shaping!r} does not exist; use {', '.join(allowed)}.{near_match(shaping, allowed)}")


@dataclass(frozen=True, slots=True)
class _Graduated:
    invalid: float
    shaping: Shaping
    levels: tuple[float, ...]
    thresholds: tuple[float, ...]
    valid_bonus: float

    def __call__(self, specs: Sequence[RewardSpec], parts: Mapping[str, float], valid: bool) -> float:
        earned = [spec for spec in specs if spec.is_criterion]
        penalties = _weighted([spec for spec in specs if spec.is_penalty], parts)
        value = self._shaped(_quality(earned, parts))
        if value < 0:
            value = min(0.0, value + self.valid_bonus)
        return (value if valid else min(value, self.invalid + _weighted(earned, parts))) + penalties

    def explain(self, specs: Sequence[RewardSpec], parts: Mapping[str, float], valid: bool) -> Composition:
        earned = [spec for spec in specs if spec.is_criterion]
        penalties = _weighted_parts([spec for spec in specs if spec.is_penalty], parts)
        value = self(earned, parts, valid)
        rule = (
            f"{self.shaping} value {value:.4g} of quality {_quality(earned, parts):.4g} = Σ weight · part / its maximum"
        )
        return Composition(rule if valid else f"{rule}, at most {self.invalid:g} + Σ weight · part", value, penalties)

    def _shaped(self, quality: float) -> float:
        return shape(quality, self.shaping, invalid=self.invalid, levels=self.levels, thresholds=self.thresholds)


@dataclass(frozen=True, slots=True)
class _BinaryFrom(_Graduated):
    """`binary` with a threshold; a class of its own, since a field of `_Graduated` would change all identities."""

    binary_from: float

    def _shaped(self, quality: float) -> float:
        return shape(quality, self.shaping, invalid=self.invalid, binary_from=self.binary_from)


def _quality(earned: Sequence[RewardSpec], parts: Mapping[str, float]) -> float:
    """Σ weight · raw / Σ weight · maximum of the criteria, in [0, 1]."""
    most = math.fsum(spec.weight * spec.maximum for spec in earned)
    return min(1.0, max(0.0, _weighted(earned, parts) / most)) if most else 0.0


def graduated(
    *,
    invalid: float = -0.3,
    shaping: Shaping = "graduated",
    levels: Sequence[float] = GRADUATED_LEVELS,
    thresholds: Sequence[float] = GRADUATED_THRESHOLDS,
    valid_bonus: float = 0.1,
    binary_from: float | None = None,
) -> Composer:
    """Compose the normalised weighted quality Σ w·raw / Σ w·maximum, then `shape` it; penalties are added after.

    Args:
        invalid: Value of a completion that the validator refused. Rewards that do not take `answer` are added, up to
            what the same parts earn a valid completion: being refused never pays.
        shaping: `graduated`, `linear`, `binary` or `continuous`.
        levels: Values of the ladder, lowest first; the first is what any valid completion gets.
        thresholds: Quality at which each further level begins; one fewer than `levels`.
        valid_bonus: Added, up to 0, to a valid completion whose shaped value is negative (binary and linear shaping),
            so that valid is worth more than invalid. RookWorld adds it without that bound, by which a better answer
            just below 0 earns more than one just above.
        binary_from: Lowest quality for which `binary` pays; by default any above one half. Set it where the form alone
            earns half of the quality.

    Raises:
        UserError: levels or thresholds that do not rise, or whose counts do not fit; a shaping that does not exist; a
            `binary_from` that is not above 0 and at most 1.
    """
    _check_levels(invalid, levels)
    _check_rising("thresholds", thresholds)
    if len(levels) != len(thresholds) + 1:
        raise UserError(f"graduated(): {len(levels)} levels need {len(levels) - 1} thresholds, got {len(thresholds)}.")
    if binary_from is not None and not 0 < binary_from <= 1:
        raise UserError(f"graduated(): binary_from={binary_from} must be a quality above 0 and at most 1.")
    shape(0.0, shaping)
    settings = (invalid, shaping, tuple(levels), tuple(thresholds), valid_bonus)
    return _Graduated(*settings) if shaping != "binary" or binary_from is None else _BinaryFrom(*settings, binary_from)


@dataclass(frozen=True, slots=True)
class _Ladder:
    invalid: float
    levels: tuple[float, ...]

    def check(self, task: str, specs: Sequence[RewardSpec]) -> None:
        criteria = sum(spec.is_criterion for spec in specs)
        if criteria != len(self.levels) - 1:
            raise UserError(
                f"task {task!r}: a ladder of {len(self.levels)} levels needs {len(self.levels) - 1} criteria "
                f"(one reward each, penalties and weight 0 apart), the task has {criteria}."
            )

    def __call__(self, specs: Sequence[RewardSpec], parts: Mapping[str, float], valid: bool) -> float:
        criteria = [spec for spec in specs if spec.is_criterion]
        penalties = _weighted([spec for spec in specs if spec.is_penalty], parts)
        value = self.levels[_rungs(criteria, parts)]
        return (value if valid else min(value, self.invalid + _weighted(criteria, parts))) + penalties

    def explain(self, specs: Sequence[RewardSpec], parts: Mapping[str, float], valid: bool) -> Composition:
        criteria = [spec for spec in specs if spec.is_criterion]
        contributions = _weighted_parts([spec for spec in specs if spec.is_penalty], parts)
        rungs = _rungs(criteria, parts)
        rule = f"{rungs} of {len(criteria)} rungs, climbed in order"
        if not valid:
            rule += f"; not valid, at most {self.invalid:g} + Σ weight · part"
            return Composition(rule, self(criteria, parts, valid), contributions)
        for index, spec in enumerate(criteria):
            contributions[spec.name] = self.levels[index + 1] - self.levels[index] if index < rungs else 0.0
        return Composition(f"{rule}, from {self.levels[0]:g} for a valid completion", self.levels[0], contributions)


def _rungs(criteria: Sequence[RewardSpec], parts: Mapping[str, float]) -> int:
    """Number of criteria that hold before the first that does not."""
    reached = (spec.reached_by(parts.get(spec.name, -math.inf)) for spec in criteria)
    return sum(1 for _ in takewhile(bool, reached))


def ladder(*, invalid: float = -0.3, levels: Sequence[float] = GRADUATED_LEVELS) -> Composer:
    """Compose by stated criteria: each reward is one rung, climbed in order while each reaches its maximum.

    Args:
        invalid: Value of an invalid completion, as for `graduated`.
        levels: levels[0] for any valid completion, levels[k] when the first k criteria hold.

    Raises:
        UserError: levels that do not rise; when the task is made, a number of criteria that is not len(levels) − 1.
    """
    _check_levels(invalid, levels)
    return _Ladder(invalid, tuple(levels))


def value_bounds(compose: Composer, specs: Sequence[RewardSpec]) -> tuple[float, float]:
    """The least and the greatest value, if every part earns 0 to its maximum; infinite where no bound is declared.

    A penalty of weight below 0 takes up to its maximum, and another one any amount. A composer of the task's own may
    return anything.
    """
    if not isinstance(compose, _WeightedSum | _Graduated | _Ladder):
        return -math.inf, math.inf
    least = {spec.name: 0.0 if spec.is_criterion else -math.inf for spec in specs if not spec.is_fact}
    least |= {spec.name: max(0.0, spec.maximum) for spec in specs if spec.weight < 0}
    most = {spec.name: spec.maximum if spec.is_criterion else min(0.0, spec.maximum) for spec in specs}
    return tuple(  # type: ignore[return-value] # of two
        end(compose(specs, parts, valid) for valid in (True, False)) for end, parts in ((min, least), (max, most))
    )


def check_composer(task: str, compose: Composer, specs: Sequence[RewardSpec]) -> None:
    """Ask a composer that has conditions of its own whether a task's rewards meet them.

    Raises:
        UserError: they do not.
    """
    if isinstance(compose, _Ladder):
        compose.check(task, specs)


def _check_invalid(invalid: float) -> None:
    if not in_bounds(invalid):
        raise UserError(f"invalid={invalid} must be a number {BOUNDS}.")


def _check_levels(invalid: float, levels: Sequence[float]) -> None:
    _check_invalid(invalid)
    _check_rising("levels", levels)
    if invalid >= levels[0]:
        raise UserError(
            f"invalid={invalid} must be below the first level {levels[0]}, which any valid completion gets."
        )


def _check_rising(name: str, values: Sequence[float]) -> None:
    # Written with `not <`, because NaN is in no order.
    if not values or not all(map(in_bounds, values)) or any(not a < b for a, b in pairwise(values)):
        raise UserError(f"{name}={tuple(values)} must be numbers {BOUNDS} that rise from the first to the last.")
