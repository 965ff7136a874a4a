"""Weights of penalties that change while training: β of the KL and c of the entropy bonus, driven by a controller."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any

from grpo_core.algorithms.controllers import HISTORY, applied, kl_warmup
from grpo_core.plugins.variants import BoundVariant


class Coefficient:
    """One coefficient with its controller.

    Args:
        value: Initial value.
        controller: The controller, which changes the value after each update.
        warmup_steps: Updates over which the coefficient in effect grows linearly from 0.

    Attributes:
        value: The value that the controller keeps, before warm-up.
    """

    def __init__(self, value: float, controller: BoundVariant, *, warmup_steps: int = 0) -> None:
        self.value, self.warmup_steps = value, warmup_steps
        self._controller = controller
        self._history: deque[float] = deque(maxlen=HISTORY)
        self._updates = 0

    @property
    def in_effect(self) -> float:
        """The coefficient of the next update, warm-up included."""
        value = applied(self._controller.function, self.value, tuple(self._history), **self._controller.arguments)
        if not self.warmup_steps:
            return value
        return kl_warmup(value, self._updates + 1, warmup_steps=self.warmup_steps)

    def observe(self, measured: float) -> None:
        """Give the controller the measurement of an update; a number that is not finite is left out."""
        self._updates += 1
        if math.isfinite(measured):
            self._history.append(measured)
            self.value = float(self._controller(self.value, tuple(self._history)))

    def state(self) -> dict[str, Any]:
        """Everything that `observe` changed, as JSON."""
        return {"value": self.value, "history": list(self._history), "updates": self._updates}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`."""
        self.value, self._updates = float(state["value"]), int(state["updates"])
        self._history = deque(map(float, state["history"]), maxlen=HISTORY)
