"""Weights of penalties that change while training: β of the KL and c of the entropy bonus, driven by a controller."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any, Literal

from grpo_core.algorithms.controllers import HISTORY, applied, kl_warmup
from grpo_core.config import TrainerConfig
from grpo_core.plugins import variants as registry


class Coefficient:
    """One coefficient with its controller.

    Args:
        value: What it starts at.
        kind: Which kind of controller.
        controller: Its name.
        arguments: The controller's own.
        warmup_steps: Updates over which the coefficient in effect grows linearly from 0.
        section: What the user calls the arguments.

    Attributes:
        value: What the controller has made of it, before warm-up.
    """

    def __init__(
        self,
        value: float,
        kind: Literal["kl_controller", "entropy_controller"],
        controller: str,
        arguments: Mapping[str, Any],
        *,
        warmup_steps: int = 0,
        section: str,
    ) -> None:
        self.value, self.warmup_steps = value, warmup_steps
        self._controller = registry.resolve(kind, controller)
        self._arguments = registry.validate_arguments(kind, controller, arguments, section)
        self._history: deque[float] = deque(maxlen=HISTORY)
        self._updates = 0

    @classmethod
    def of_kl(cls, config: TrainerConfig) -> Coefficient:
        """β as configured."""
        return cls(
            config.beta,
            "kl_controller",
            config.kl_controller,
            config.kl_controller_args,
            warmup_steps=config.kl_warmup_steps,
            section="trainer.kl_controller_args",
        )

    @classmethod
    def of_entropy(cls, config: TrainerConfig) -> Coefficient:
        """The entropy bonus as configured."""
        return cls(
            config.entropy_coef,
            "entropy_controller",
            config.entropy_controller,
            config.entropy_controller_args,
            section="trainer.entropy_controller_args",
        )

    @property
    def in_effect(self) -> float:
        """The coefficient of the next update, warm-up included."""
        value = applied(self._controller, self.value, tuple(self._history), **self._arguments)
        if not self.warmup_steps:
            return value
        return kl_warmup(value, self._updates + 1, warmup_steps=self.warmup_steps)

    def observe(self, measured: float) -> None:
        """Tell the controller what an update measured; a number that does not exist is passed over."""
        self._updates += 1
        if math.isfinite(measured):
            self._history.append(measured)
            self.value = float(self._controller(self.value, tuple(self._history), **self._arguments))

    def state(self) -> dict[str, Any]:
        """Everything that `observe` changed, as JSON."""
        return {"value": self.value, "history": list(self._history), "updates": self._updates}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`."""
        self.value, self._updates = float(state["value"]), int(state["updates"])
        self._history = deque(map(float, state["history"]), maxlen=HISTORY)
