"""The judges of a run: their errors at its start, and what they cost."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from grpo_core.policy.ranks import Ranks
from grpo_core.training.catalogue import OF_JUDGES
from grpo_sdk.callbacks import ResolvedDefault
from grpo_sdk.judges.known import JudgeErrors
from grpo_sdk.judges.service import usages
from grpo_sdk.judges.usage import Usage
from grpo_sdk.scoring.judge_errors import error_choices, judge_errors
from grpo_sdk.scoring.scorer import Scorer


class RunJudges:
    """What the judges of a run's tasks do; nothing where no task has one. Ranks call it together.

    Args:
        scorers: Task label -> scorer.
        ranks: The processes of the run.
    """

    def __init__(self, scorers: Mapping[str, Scorer], ranks: Ranks) -> None:
        self._scorers = {label: scorer for label, scorer in scorers.items() if scorer.task.task.judges()}
        self._ranks = ranks
        self._errors: Mapping[str, list[JudgeErrors]] = {}
        self._before = self._first = usages()
        self._total = Usage()

    def measure_errors(self, on_progress: Callable[[str, int, int], None]) -> list[ResolvedDefault]:
        """Ask the judges about completions with known verdicts; returns lines to show.

        Args:
            on_progress: Told what is asked, the verdicts that there are, and their number in the end.

        Raises:
            UserError: known verdicts that are none, or a judge that cannot be asked.
        """
        if self._ranks.is_main:
            measured = {label: judge_errors(scorer, on_progress) for label, scorer in self._scorers.items()}
            self._errors = {label: errors for label, errors in measured.items() if errors}
        return error_choices(self._errors)

    def step_metrics(self) -> dict[str, float]:
        """What all ranks asked since the last call, and in the whole run."""
        if not self._scorers:
            return {}
        now = usages()
        step = Usage.total(self._of_ranks(_difference(now, self._before)).values())
        self._before = now
        self._total = Usage.total((self._total, step))
        metrics = {f"judge/{name}": float(getattr(step, name)) for name, _ in OF_JUDGES}
        metrics |= {f"judge/total_{name}": float(getattr(self._total, name)) for name, _ in OF_JUDGES}
        if step.requests:
            metrics["judge/mean_s"] = step.seconds / step.requests
        return metrics

    def summary(self) -> dict[str, Any]:
        """What `summary.json` holds; empty where no task has a judge."""
        if not self._scorers:
            return {}
        usage = self._of_ranks(_difference(usages(), self._first))
        errors = {label: [each.as_json() for each in several] for label, several in self._errors.items()}
        by_model = {address: {**each.as_json(), "text": each.text()} for address, each in usage.items()}
        return {"judges": {"usage": by_model, "errors": errors}}

    def _of_ranks(self, usage: Mapping[str, Usage]) -> dict[str, Usage]:
        """The usage of all ranks together, by the address of the model."""
        data = json.dumps({address: each.as_json() for address, each in usage.items()}).encode()
        of_each = [json.loads(content) for content in self._ranks.gather(data)]
        addresses = dict.fromkeys(address for content in of_each for address in content)
        return {
            address: Usage.total(content[address] for content in of_each if address in content) for address in addresses
        }


def _difference(now: Mapping[str, Usage], before: Mapping[str, Usage]) -> dict[str, Usage]:
    return {address: usage.minus(before.get(address, Usage())) for address, usage in now.items()}
