"""Counts of a server in Prometheus' format."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from grpo_core.task.score import Score

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the classes of durations."""


class Metrics:
    """Counts of a server."""

    content_type = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(self) -> None:
        self._registry = CollectorRegistry()  # its own: several servers may run in one process
        self._requests = Counter(
            "grpo_serve_requests", "Requests answered.", ["protocol", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "grpo_serve_request_seconds",
            "Duration of a request from its head to its answer, waiting for a worker included.",
            ["protocol"],
            buckets=SECONDS,
            registry=self._registry,
        )
        self._completions = Counter(
            "grpo_serve_completions",
            "Completions by outcome: solved, unsolved, or why there is no score (reward, timeout, infrastructure).",
            ["task", "outcome"],
            registry=self._registry,
        )

    def watch(self, name: str, help_line: str, value: Callable[[], float]) -> None:
        """Add a gauge whose value is computed when it is read."""
        Gauge(f"grpo_serve_{name}", help_line, registry=self._registry).set_function(value)

    def count_request(self, protocol: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        self._requests.labels(protocol, str(status)).inc()
        self._seconds.labels(protocol).observe(seconds)

    def count_scores(self, task: str, scores: Iterable[Score]) -> None:
        """Count the scores of completions of a task."""
        for score in scores:
            outcome = score.fault if score.abstained else "solved" if score.solved else "unsolved"
            self._completions.labels(task, outcome or "infrastructure").inc()

    def text(self) -> bytes:
        """All counts in Prometheus' text format."""
        return generate_latest(self._registry)
