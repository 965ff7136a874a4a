"""How the parts of a reward become one number: the `reward` mark and the composers."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, Protocol, TypeVar

from grpo_core.errors import UserError, near_match

RewardFunction = TypeVar("RewardFunction", bound=Callable[..., float])
Shaping = Literal["graduated", "linear", "binary", "continuous"]

REWARD_ARGUMENTS = ("answer", "row", "text", "config", "predictions")
"""What a reward function may ask for by name."""


@dataclass(frozen=True, slots=True)
class RewardSpec:
    """One reward function with its mark.

    Attributes:
        name: The function's name; the key in `Score.parts`.
        function: The plain function.
        weight: Factor of the raw part in the composed value.
        needs: Name of an earlier reward that must reach its maximum before this one is asked.
        maximum: Largest raw value; the gold completion reaches it.
        arguments: The names among `REWARD_ARGUMENTS` that the function takes.
    """

    name: str
    function: Callable[..., float]
    weight: float
    needs: str | None
    maximum: float
    arguments: tuple[str, ...]

    @property
    def is_penalty(self) -> bool:
        """Whether this part can only take away; penalties do not decide `solved`."""
        return self.weight <= 0 or self.maximum <= 0

    def reached_by(self, raw: float) -> bool:
        """Whether `raw` is this part's maximum, up to float rounding."""
        return raw >= self.maximum - 1e-9 * max(1.0, abs(self.maximum))


def reward(
    weight: float = 1.0, *, needs: str | None = None, maximum: float = 1.0
) -> Callable[[RewardFunction], RewardFunction]:
    """Mark a plain function as a reward; it stays a plain function.

    Args:
        weight: Factor of the raw value; negative for a penalty that returns positive amounts.
        needs: Name of an earlier reward: this one is 0 until that one reaches its maximum.
        maximum: Largest raw value the function returns; 0 for a penalty that returns 0 or less.
    """
    if not (math.isfinite(weight) and math.isfinite(maximum)):
        raise UserError(f"reward(weight={weight}, maximum={maximum}): both must be finite numbers.")

    def mark(function: RewardFunction) -> RewardFunction:
        function._grpo_reward = (float(weight), needs, float(maximum))  # type: ignore[attr-defined]
        return function

    return mark


def reward_specs(task: str, functions: Sequence[Callable[..., float]]) -> tuple[RewardSpec, ...]:
    """Read the marks of a task's reward functions, in order.

    Raises:
        UserError: no reward, a duplicate name, an argument that does not exist, or a `needs` that names no earlier
            reward; each names the task and the function.
    """
    if not functions:
        raise UserError(f"task {task!r} has no rewards; give at least one function marked with @reward.")
    specs: list[RewardSpec] = []
    for function in functions:
        name = getattr(function, "__name__", type(function).__name__)
        weight, needs, maximum = getattr(function, "_grpo_reward", (1.0, None, 1.0))
        arguments = tuple(inspect.signature(function).parameters)
        for argument in arguments:
            if argument not in REWARD_ARGUMENTS:
                raise UserError(
                    f"task {task!r}: reward {name}() takes {argument!r}; a reward may take "
                    f"{', '.join(REWARD_ARGUMENTS)}.{near_match(argument, REWARD_ARGUMENTS)}"
                )
        earlier = [spec.name for spec in specs]
        if name in earlier:
            raise UserError(f"task {task!r} has two rewards named {name!r}; parts are kept by name, so rename one.")
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


def _weighted(specs: Sequence[RewardSpec], parts: Mapping[str, float]) -> float:
    return math.fsum(spec.weight * parts[spec.name] for spec in specs if spec.name in parts)


@dataclass(frozen=True, slots=True)
class _WeightedSum:
    invalid: float

    def __call__(self, specs: Sequence[RewardSpec], parts: Mapping[str, float], valid: bool) -> float:
        total = _weighted(specs, parts)
        return total if valid else self.invalid + total


def weighted_sum(*, invalid: float = 0.0) -> Composer:
    """Compose Σ weight · raw part, not normalised.

    Args:
        invalid: Base value of a completion that the validator refused; rewards that do not take `answer` are added.
    """
    return _WeightedSum(invalid)


GRADUATED_LEVELS = (0.2, 0.4, 0.6, 0.8, 1.0)
GRADUATED_THRESHOLDS = (0.4, 0.6, 0.8, 0.95)
"""Quality at which each level after the first begins (RookWorld's ladder: 0.95 counts as complete)."""


def shape(
    quality: float,
    shaping: Shaping = "graduated",
    *,
    invalid: float = -0.3,
    levels: Sequence[float] = GRADUATED_LEVELS,
    thresholds: Sequence[float] = GRADUATED_THRESHOLDS,
) -> float:
    """Shape a valid completion's quality in [0, 1] into a reward.

    `graduated`: levels[k], k = number of thresholds at or below the quality. `linear`: invalid + (1 − invalid)·quality.
    `binary`: 1 above one half, else `invalid`. `continuous`: the quality itself.

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
            return 1.0 if quality > 0.5 else invalid
        case "continuous":
            return quality
    allowed = ("graduated", "linear", "binary", "continuous")
    raise UserError(f"shaping {shaping!r} does not exist; use {', '.join(allowed)}.{near_match(shaping, allowed)}")


@dataclass(frozen=True, slots=True)
class _Graduated:
    invalid: float
    shaping: Shaping
    levels: tuple[float, ...]
    thresholds: tuple[float, ...]
    valid_bonus: float

    def __call__(self, specs: Sequence[RewardSpec], parts: Mapping[str, float], valid: bool) -> float:
        earned = [spec for spec in specs if not spec.is_penalty]
        penalties = _weighted([spec for spec in specs if spec.is_penalty], parts)
        if not valid:
            return self.invalid + penalties
        most = math.fsum(spec.weight * spec.maximum for spec in earned)
        quality = min(1.0, max(0.0, _weighted(earned, parts) / most)) if most else 0.0
        value = shape(quality, self.shaping, invalid=self.invalid, levels=self.levels, thresholds=self.thresholds)
        return value + (self.valid_bonus if value < 0 else 0.0) + penalties


def graduated(
    *,
    invalid: float = -0.3,
    shaping: Shaping = "graduated",
    levels: Sequence[float] = GRADUATED_LEVELS,
    thresholds: Sequence[float] = GRADUATED_THRESHOLDS,
    valid_bonus: float = 0.1,
) -> Composer:
    """Compose the normalised weighted quality Σ w·raw / Σ w·maximum, then `shape` it; penalties are added after.

    Args:
        invalid: Value of a completion that the validator refused.
        shaping: `graduated`, `linear`, `binary` or `continuous`.
        levels: Values of the ladder, lowest first; the first is what any valid completion gets.
        thresholds: Quality at which each further level begins; one fewer than `levels`.
        valid_bonus: Added to a valid completion whose shaped value is negative (binary and linear shaping), so that
            valid is always worth more than invalid.

    Raises:
        UserError: levels or thresholds that do not rise, or whose counts do not fit.
    """
    _check_rising("levels", levels)
    _check_rising("thresholds", thresholds)
    if len(levels) != len(thresholds) + 1:
        raise UserError(f"graduated(): {len(levels)} levels need {len(levels) - 1} thresholds, got {len(thresholds)}.")
    shape(0.0, shaping)
    return _Graduated(invalid, shaping, tuple(levels), tuple(thresholds), valid_bonus)


@dataclass(frozen=True, slots=True)
class _Ladder:
    invalid: float
    levels: tuple[float, ...]

    def __call__(self, specs: Sequence[RewardSpec], parts: Mapping[str, float], valid: bool) -> float:
        criteria = [spec for spec in specs if not spec.is_penalty]
        if len(criteria) != len(self.levels) - 1:
            raise UserError(
                f"ladder(): {len(self.levels)} levels need {len(self.levels) - 1} criteria "
                f"(one reward each), the task has {len(criteria)}."
            )
        penalties = _weighted([spec for spec in specs if spec.is_penalty], parts)
        if not valid:
            return self.invalid + penalties
        rung = 0
        for spec in criteria:
            if not spec.reached_by(parts[spec.name]):
                break
            rung += 1
        return self.levels[rung] + penalties


def ladder(*, invalid: float = -0.3, levels: Sequence[float] = GRADUATED_LEVELS) -> Composer:
    """Compose by stated criteria: each reward is one rung, climbed in order while each reaches its maximum.

    Args:
        invalid: Value of a completion that the validator refused.
        levels: levels[0] for any valid completion, levels[k] when the first k criteria hold.

    Raises:
        UserError: levels that do not rise; when scoring, a task whose number of criteria is not len(levels) − 1.
    """
    _check_rising("levels", levels)
    return _Ladder(invalid, tuple(levels))


def _check_rising(name: str, values: Sequence[Any]) -> None:
    if not values or any(b <= a for a, b in pairwise(values)):
        raise UserError(f"{name}={tuple(values)} must rise from the first to the last.")
