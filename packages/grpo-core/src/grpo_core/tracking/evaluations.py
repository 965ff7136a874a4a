"""Names of an evaluation's numbers in logs and trackers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grpo_sdk.records.run_folder import flat

NOT_LOGGED = frozenset({"temperature", "top_p", "completions_per_row"})
"""Numbers of a summary that are settings, not results."""

METRICS = "metrics"
"""Key of a summary for the task's own metrics, which are logged as `eval/TASK/NAME`."""

REPORT = "report"
"""Key of a summary for what the task reports, which is logged under its own names."""

TIMING = "timing"

_APART = frozenset({METRICS, REPORT, TIMING, "base", "conditions"})


def evaluation_metrics(label: str, result: Mapping[str, Any]) -> dict[str, float]:
    """Return all numbers of a result as `eval/TASK/…`, and what the task reports under its own names.

    Args:
        label: Task label.
        result: Entry of the task in summary.json, with or without `timing`.
    """
    own = {name: value for name, value in result.items() if name not in _APART and name not in NOT_LOGGED}
    named = {**flat(own), **result.get(TIMING, {}), **result.get(METRICS, {})}
    numbers = {f"eval/{label}/{name}": value for name, value in named.items()} | dict(result.get(REPORT, {}))
    return {
        name: float(value)
        for name, value in numbers.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
