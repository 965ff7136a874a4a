"""The option `shaping` of tasks whose reward is a quality in [0, 1]."""

from __future__ import annotations

from grpo_sdk import TaskConfig
from grpo_sdk.rewards import Shaping


class ShapedConfig(TaskConfig):
    """Option of the shaping.

    Attributes:
        shaping: `graduated` (−0.3, 0.2, 0.4, 0.6, 0.8, 1.0), `linear` (−0.3 + 1.3 · quality), `binary` (1.0 above one
            half, in `chess.environment` only for the exact next state; −0.2 below, −0.3 invalid) or `continuous` (the
            quality).
    """

    shaping: Shaping = "graduated"
