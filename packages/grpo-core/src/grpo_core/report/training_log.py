"""The training log of a run for a report: read once, in memory that does not grow with the run."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from grpo_core.tracking.jsonl import TRAIN_LOG, read_lines, with_step
from grpo_core.tracking.runs import is_number

MAX_STEPS = 1000
"""Points of a metric; of more logged steps, means over equal numbers of them."""

PHASES = ("generate_s", "update_s")
"""Metrics of the time that a step spends in each phase; `step_s` is all of it."""


class TrainingLog:
    """Metrics of a run over its logged steps, and the seconds of its phases.

    Args:
        run: Folder of the run.
        missing: Receives what could not be read.

    Attributes:
        steps: Logged steps; of more than `MAX_STEPS`, the last of each of some blocks of equal length.
        seconds: Phase -> seconds over all steps, `other_s` among them.
    """

    def __init__(self, run: Path, missing: list[str]) -> None:
        self.steps: list[int] = []
        self.seconds: dict[str, float] = {}
        self._blocks: list[dict[str, tuple[float, int]]] = []  # metric -> sum and number of what is known
        self._length, self._lines = 1, 0
        for _, line in read_lines(run / TRAIN_LOG, with_step, missing):
            self._spend(line)
            self._add(line)
        if not self.steps:
            missing.append("no logged step yet: no metrics")

    def metrics(self) -> dict[str, list[float | None]]:
        """Metric -> its mean over each block; None where it was not logged or is not finite."""
        names = dict.fromkeys(name for block in self._blocks for name in block)
        return {name: [_mean(*block.get(name, (0.0, 0))) for block in self._blocks] for name in names}

    def _add(self, line: dict[str, Any]) -> None:
        if self._lines % self._length == 0:
            if len(self._blocks) == MAX_STEPS:
                self._halve()
            self._blocks.append({})
            self.steps.append(0)
        block = self._blocks[-1]
        for name, value in line.items():
            if name != "step" and is_number(value):
                total, count = block.get(name, (0.0, 0))
                block[name] = (total + value, count + 1)
        self.steps[-1] = line["step"]
        self._lines += 1

    def _halve(self) -> None:
        """Make one block of each two; `MAX_STEPS` is even, so all are of one length again."""
        self._blocks = [
            {
                name: (first.get(name, (0.0, 0))[0] + value, first.get(name, (0.0, 0))[1] + count)
                for name, (value, count) in {**dict.fromkeys(first, (0.0, 0)), **second}.items()
            }
            for first, second in zip(self._blocks[::2], self._blocks[1::2], strict=True)
        ]
        self.steps = self.steps[1::2]
        self._length *= 2

    def _spend(self, line: dict[str, Any]) -> None:
        spent = {name: line[name] for name in (*PHASES, "step_s") if is_number(line.get(name))}
        whole = spent.pop("step_s", math.fsum(spent.values()))
        for name, seconds in {**spent, "other_s": max(0.0, whole - math.fsum(spent.values()))}.items():
            self.seconds[name] = self.seconds.get(name, 0.0) + seconds


def _mean(total: float, count: int) -> float | None:
    return float(f"{total / count:.6g}") if count else None
