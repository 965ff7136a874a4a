"""Gradient noise scale: how many prompts a step needs before more of them stop helping (arXiv 1812.06162, appendix A).

The unit is a whole prompt. A mean gradient of b prompts has E‖g_b‖² = |G|² + tr Σ / b, so two batch sizes give both
unknowns without bias, and B_simple = tr Σ / |G|². A single estimate is far too noisy, and the ratio of two noisy
numbers is biased: both are averaged over steps, and divided last.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from grpo_sdk.errors import UserError


def gns_pair(small_sq: float, big_sq: float, *, b_small: float, b_big: float) -> tuple[float, float]:
    """Unbiased estimates from the gradients of a small and a big batch; either may come out negative.

    |G|² = (B·‖g_B‖² − b·‖g_b‖²) / (B − b); tr Σ = (‖g_b‖² − ‖g_B‖²) / (1/b − 1/B).

    Args:
        small_sq: Squared norm of the small batch's mean gradient, or the mean of several.
        big_sq: Squared norm of the big batch's.
        b_small: Prompts in the small batch.
        b_big: Prompts in the big batch.

    Returns:
        (g2, trace).

    Raises:
        UserError: unless 0 < b_small < b_big.
    """
    if not 0 < b_small < b_big:
        raise UserError(
            f"b_small={b_small:g} and b_big={b_big:g}: the noise scale needs two batch sizes, 0 < b_small < b_big. "
            f"Split the step into more forward passes, or measure two batches."
        )
    g2 = (b_big * big_sq - b_small * small_sq) / (b_big - b_small)
    trace = (small_sq - big_sq) / (1 / b_small - 1 / b_big)
    return g2, trace


@dataclass
class NoiseScale:
    """Running means of |G|² and tr Σ, corrected for their start at 0, and divided last.

    Attributes:
        decay: Weight of the past in each mean.
    """

    decay: float = 0.9
    _g2: float = 0.0
    _trace: float = 0.0
    _weight: float = 0.0

    def update(self, g2: float, trace: float) -> float:
        """Take one step's estimates, and return `b_simple`; those of a failed step, no numbers, are left out."""
        if math.isfinite(g2) and math.isfinite(trace):
            self._g2 = self.decay * self._g2 + (1 - self.decay) * g2
            self._trace = self.decay * self._trace + (1 - self.decay) * trace
            self._weight = self.decay * self._weight + (1 - self.decay)
        return self.b_simple

    @property
    def g2(self) -> float:
        """Mean of |G|²; NaN before the first step."""
        return self._g2 / self._weight if self._weight else math.nan

    @property
    def trace(self) -> float:
        """Mean of tr Σ; NaN before the first step."""
        return self._trace / self._weight if self._weight else math.nan

    @property
    def b_simple(self) -> float:
        """B_simple = tr Σ / |G|² in prompts; NaN while a mean is not above 0: more steps are needed."""
        return self.trace / self.g2 if self.g2 > 0 and self.trace > 0 else math.nan

    def state(self) -> dict[str, float]:
        """For a checkpoint."""
        return {"g2": self._g2, "trace": self._trace, "weight": self._weight}

    def load_state(self, state: Mapping[str, float]) -> None:
        """From a checkpoint."""
        self._g2, self._trace, self._weight = state["g2"], state["trace"], state["weight"]
