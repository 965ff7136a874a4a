"""Learning-rate schedules: (step, total steps) -> factor of the learning rate."""

from __future__ import annotations

import math

FINAL_COSINE_FACTOR = 0.1
"""Cosine ends here and not at 0, so that additional steps still learn."""


def constant(step: int, total_steps: int, *, warmup_steps: int = 0) -> float:
    """Linear warm-up, then 1. `step` counts from 0; `total_steps` is not used."""
    return linear_warmup(step, warmup_steps)


def cosine(step: int, total_steps: int, *, warmup_steps: int = 0) -> float:
    """Linear warm-up, then half a cosine from 1 to 0.1 at `total_steps`, constant after.

    `grpo warm-start --lr-scheduler cosine` ends at 0.
    """
    if step < warmup_steps:
        return linear_warmup(step, warmup_steps)
    progress = min(1.0, (step - warmup_steps) / max(1, total_steps - warmup_steps))
    return FINAL_COSINE_FACTOR + (1 - FINAL_COSINE_FACTOR) * (1 + math.cos(math.pi * progress)) / 2


def none(step: int, total_steps: int) -> float:
    """Always 1, no warm-up."""
    return 1.0


def linear_warmup(step: int, warmup_steps: int) -> float:
    """Factor of step 0, 1, …; the first step already learns, since 0 would waste a batch of completions."""
    return min(1.0, (step + 1) / (warmup_steps + 1)) if warmup_steps else 1.0
