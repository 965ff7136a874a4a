"""The best step so far, by its held-out solved rate."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(slots=True)
class Best:
    """What interval evaluations have shown.

    Attributes:
        step: Of the best evaluation; None before the first.
        solved_rate: Its mean over the evaluated tasks.
        waited: Evaluations since then.
    """

    step: int | None = None
    solved_rate: float | None = None
    waited: int = 0

    def report(self, step: int, solved_rate: float) -> None:
        """Take an evaluation; an equal one is no better."""
        if self.solved_rate is not None and solved_rate <= self.solved_rate:
            self.waited += 1
        else:
            self.step, self.solved_rate, self.waited = step, solved_rate, 0

    def as_json(self) -> dict[str, Any]:
        """For checkpoint and summary."""
        return asdict(self)
