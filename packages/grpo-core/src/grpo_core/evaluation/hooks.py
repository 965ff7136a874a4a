"""Functions that an evaluation calls while it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationHooks:
    """Functions that an evaluation calls while it runs.

    Attributes:
        progress: Receives (completions done, completions) after each.
        should_stop: Whether to stop; called after every completion.
        warn: Receives a warning when memory ran out.
    """

    progress: Callable[[int, int], None] = lambda done, total: None
    should_stop: Callable[[], bool] = lambda: False
    warn: Callable[[str], None] = lambda message: None
