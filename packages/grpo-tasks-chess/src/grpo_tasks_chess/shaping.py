"""The task option `shaping`, which converts the quality of an answer, in [0, 1], to its reward."""

from __future__ import annotations

import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from grpo_core import TaskConfig, reward
from grpo_core.rewards import GRADUATED_THRESHOLDS, Composer, RewardSpec, graduated

Shaping = Literal["graduated", "linear", "binary", "continuous"]

SHAPINGS: tuple[Shaping, ...] = typing.get_args(Shaping)


class ShapedConfig(TaskConfig):
    """Option of the shaping.

    Attributes:
        shaping: `graduated` (−0.3, 0.2, 0.4, 0.6, 0.8, 1.0), `linear` (−0.3 + 1.3 · quality), `binary` (1.0 above one
            half, else −0.3) or `continuous` (the quality).
    """

    shaping: Shaping = "graduated"


@reward(0.0)
def shaping(config: ShapedConfig) -> float:
    """Return the index of the shaping in `SHAPINGS`, as a part, since a composer gets parts but no options."""
    return float(SHAPINGS.index(config.shaping))


@dataclass(frozen=True, slots=True)
class _AsConfigured:
    composers: tuple[Composer, ...]

    def __call__(self, specs: Sequence[RewardSpec], parts: Mapping[str, float], valid: bool) -> float:
        return self.composers[int(parts[shaping.__name__])](specs, parts, valid)


def as_configured(thresholds: Sequence[float] = GRADUATED_THRESHOLDS) -> Composer:
    """Return the composer of a task whose options are a `ShapedConfig` and whose rewards include `shaping`.

    Args:
        thresholds: Qualities from which `graduated` gives 0.4, 0.6, 0.8 and 1.0.
    """
    return _AsConfigured(tuple(graduated(shaping=each, thresholds=thresholds) for each in SHAPINGS))
