"""Settings for a model that no plugin recommends any for: by its size, and by the record of its warm start."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import orjson

from grpo_sdk.errors import UserError

RECORD = "warm_start.json"
"""Beside a model that `grpo warm-start` made: how it was made, and the settings that it is trained with."""

KEYS = frozenset(
    f"trainer.{name}"
    for name in ("learning_rate", "prompts_per_step", "lr_scheduler_type", "warmup_steps", "adam_beta2")
)
"""Settings that a record may recommend: a model's folder may come from anybody."""

MAX_RECORD_BYTES = 16 << 20

SMALL = 20e6
"""Parameters below which a model is trained as the embedded ones are: larger batches, a faster second moment."""

LOWEST, HIGHEST = 1e-6, 1.5e-4
ADAPTER_FACTOR = 10
"""An adapter's best learning rate beside that of full fine-tuning: Schulman et al., "LoRA Without Regret" (2025)."""


def learning_rate(parameters: int, *, is_adapter: bool) -> float:
    """Peak learning rate for a model of this size, with two significant digits.

    A power law through the rates that worked: 1.2e-4 for 1.8 M parameters and 5e-6 for 135 M (docs/explanation/
    measured.md), and 1e-6 from 1,000 M on, as DeepSeekMath and TRL have it.
    """
    rate = min(HIGHEST, max(LOWEST, LOWEST * (1e9 / parameters) ** 0.76))
    return float(f"{rate * (ADAPTER_FACTOR if is_adapter else 1):.2g}")


def after_warm_start(parameters: int) -> dict[str, object]:
    """Settings to train a model with that was fine-tuned by `grpo warm-start`."""
    values: dict[str, object] = {
        "trainer.learning_rate": learning_rate(parameters, is_adapter=False),
        "trainer.lr_scheduler_type": "cosine",
        "trainer.warmup_steps": 10,
    }
    if parameters < SMALL:
        values |= {"trainer.prompts_per_step": 32, "trainer.adam_beta2": 0.99}
    return values


def recorded(folder: Path) -> Mapping[str, object]:
    """The settings that the record in a model's folder recommends; empty where there is none.

    Raises:
        UserError: the record is damaged, or recommends something else than its settings.
    """
    path = folder / RECORD
    try:
        with path.open("rb") as file:
            content = file.read(MAX_RECORD_BYTES + 1)
        record = orjson.loads(content) if len(content) <= MAX_RECORD_BYTES else None
    except OSError:
        return {}
    except orjson.JSONDecodeError as error:
        raise UserError(
            f"{path}: the record of the warm start cannot be read: {error}. Remove it, or repair it."
        ) from None
    values = record.get("recommended", {}) if isinstance(record, dict) else None
    if not isinstance(values, dict) or not set(values) <= KEYS:
        raise UserError(f"{path}: `recommended` must be an object with settings of {', '.join(sorted(KEYS))} alone.")
    return values
