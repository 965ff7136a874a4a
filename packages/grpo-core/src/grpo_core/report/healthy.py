"""Ranges of metrics that a report shades as healthy; the catalogue of metrics says why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from grpo_core.errors import UserError
from grpo_core.tracking.diagnoses import DEFAULT_KL_TARGET, MIN_ENTROPY, STARTING_STEPS, named
from grpo_core.tracking.observe import kl_target

Range = tuple[float | None, float | None]
"""Lowest and highest healthy value; None where there is no bound."""

RANGES: Mapping[str, Range] = {
    "frac_reward_zero_std": (0.1, 0.5),
    "completions/truncated_frac": (0, 0.1),
    "ratio_mean": (0.9, 1.1),
    "ratio_std": (0, 0.3),
    "ratio_max": (None, 10),
    "clip_ratio/region": (0, 0.2),
    "ess": (0.5, 1),
    "sampler_mismatch": (0, named("sampler-mismatch").threshold),
    "abstained": (0, 0),
}
"""Ranges that are the same in every run."""

DIAGNOSTICS = (
    "kl", "entropy", "ratio_mean", "ess", "gns/b_simple", "frac_reward_zero_std", "clip_ratio/region", "grad_norm",
    "sampler_mismatch", "completions/truncated_frac", "abstained", "loss/policy", "learning_rate",
)  # fmt: skip
"""Metrics that a report draws, in this order, where they were logged."""


def healthy_range(name: str, settings: Mapping[str, Any], values: Sequence[float | None]) -> Range | None:
    """Return the healthy range of a metric in a run, or None where it has none.

    Args:
        name: Name of the metric.
        settings: Settings of the run, by dotted key.
        values: Its values over the steps, for ranges that depend on where it began.
    """
    if name in RANGES:
        return RANGES[name]
    match name:
        case "kl":
            return (None, named("kl-high").threshold * _kl_target(settings))
        case "grad_norm":
            limit = _number(settings.get("trainer.max_grad_norm"), 0.0)
            return (0.0, limit) if limit > 0 else None
        case "entropy":
            first = [value for value in values if value is not None][:STARTING_STEPS]
            share = named("entropy-collapse").threshold
            return (min(MIN_ENTROPY, share * sum(first) / len(first)), None) if first else None
        case "gns/b_simple":  # within a factor of four of the batch: a single estimate is no better
            prompts = _number(settings.get("trainer.prompts_per_step"), 0.0)
            return (prompts / 4, prompts * 4) if prompts > 0 else None
    return None


def _kl_target(settings: Mapping[str, Any]) -> float:
    """KL per token from which the monitor warns, too; a controller that is not installed here has a known target."""
    section = "trainer.kl_controller_args."
    arguments = {name.removeprefix(section): value for name, value in settings.items() if name.startswith(section)}
    try:
        return kl_target(str(settings.get("trainer.kl_controller", "constant")), arguments)
    except UserError:
        return _number(arguments.get("target"), DEFAULT_KL_TARGET)


def _number(value: object, otherwise: float) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else otherwise
