"""A callback that remembers what it is told, for tests."""

from collections.abc import Mapping, Sequence
from typing import Any

from grpo_sdk.callbacks import Callback, Finding, ResolvedDefault, RunInfo


class Ears(Callback):
    """What was said, in order.

    Attributes:
        said: Warnings; a finding is one, too.
        findings: What diagnoses found.
        choices: Defaults that were resolved.
        progress: (what, done, total).
        results: (task, phase, result) of each evaluation.
    """

    def __init__(self) -> None:
        self.said: list[str] = []
        self.findings: list[Finding] = []
        self.choices: list[ResolvedDefault] = []
        self.progress: list[tuple[str, int, int]] = []
        self.results: list[tuple[str, str, Mapping[str, Any]]] = []

    def on_warning(self, message: str) -> None:
        self.said.append(message)

    def on_diagnosis(self, finding: Finding) -> None:
        self.findings.append(finding)
        super().on_diagnosis(finding)

    def on_run_start(self, info: RunInfo) -> None:
        self.choices += info.choices

    def on_choices(self, choices: Sequence[ResolvedDefault]) -> None:
        self.choices += choices

    def on_progress(self, what: str, done: int, total: int) -> None:
        self.progress.append((what, done, total))

    def on_evaluation(self, task: str, phase: str, result: Mapping[str, Any]) -> None:
        self.results.append((task, phase, result))
