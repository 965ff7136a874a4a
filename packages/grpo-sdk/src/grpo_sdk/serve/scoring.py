"""Scoring the completions of a request, whatever its protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from grpo_sdk.endpoints.base import SampleKey
from grpo_sdk.episodes.opponents import play_opponents
from grpo_sdk.scoring.groups import group_scores
from grpo_sdk.scoring.scorer import Scorer
from grpo_sdk.serve.errors import bad_request
from grpo_sdk.serve.tasks import ServedTask, ServedTasks
from grpo_sdk.task.marks import END_TOKENS, cut_at_stop, strip_end_tokens
from grpo_sdk.task.row import Row
from grpo_sdk.task.score import Score

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


@dataclass(frozen=True, slots=True)
class Sample:
    """A completion to score.

    Attributes:
        text: The completion.
        row: Its row.
        predictions: The opponent's answers; None where the server asks the opponent, or there is none.
    """

    text: str
    row: Row
    predictions: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Service:
    """What the protocols of a server share.

    Attributes:
        tasks: The tasks.
        metrics: Counts.
        end_tokens: Texts that are removed from the end of a completion that a trainer decoded with special tokens.
    """

    tasks: ServedTasks
    metrics: Metrics = field(default_factory=Metrics)
    end_tokens: tuple[str, ...] = END_TOKENS

    async def row(self, task: ServedTask, reference: Any, split: str | None = None) -> Row:
        """Find or read a row; see `ServedTask.row`."""
        if (row := task.loaded_row(reference, split)) is not None:
            return row
        async with task.loading:
            return await asyncio.to_thread(task.row, reference, split)

    async def rows(self, task: ServedTask, split: str | None) -> list[Row]:
        """All rows of a split; see `ServedTask.rows`."""
        async with task.loading:
            return list((await asyncio.to_thread(task.rows, split)).values())

    async def score(self, task: ServedTask, samples: Sequence[Sample]) -> list[Score]:
        """Score completions; those of one row are a group where the task compares them.

        Raises:
            RequestError: the task has an opponent, and there are neither predictions nor a sampler of them.
        """
        with self.tasks.scorer(task) as scorer:
            if task.task.opponent is not None and any(sample.predictions is None for sample in samples):
                task.check_single_completion("grpo serve")
                scores = await asyncio.to_thread(_with_opponent, task, scorer, samples)
            else:
                futures = [scorer.submit(sample.text, sample.row, sample.predictions) for sample in samples]
                scores = await asyncio.gather(*map(asyncio.wrap_future, futures))
            if task.task.task.group_specs():
                scores = await asyncio.to_thread(_with_group_rewards, scorer, samples, scores)
        self.metrics.count_scores(task.label, scores)
        return scores

    def completion(self, task: ServedTask, text: Any) -> str:
        """The completion in a text that another trainer decoded: without end tokens, up to the task's stop string.

        Raises:
            RequestError: it is no text.
        """
        if not isinstance(text, str):
            raise bad_request(f"a completion is text, not a {type(text).__name__}.")
        return cut_at_stop(strip_end_tokens(text, self.end_tokens), task.task.task.stop)[0]


def _with_opponent(task: ServedTask, scorer: Scorer, samples: Sequence[Sample]) -> list[Score]:
    assert task.opponent is not None
    keys = [SampleKey(0, 0, f"{task.label}/{sample.row.id}", index) for index, sample in enumerate(samples)]
    texts, rows = [sample.text for sample in samples], [sample.row for sample in samples]
    return play_opponents(scorer, texts, rows, task.opponent, keys=keys).scores


def _with_group_rewards(scorer: Scorer, samples: Sequence[Sample], scores: Sequence[Score]) -> list[Score]:
    groups: dict[str, list[int]] = {}
    for index, sample in enumerate(samples):
        groups.setdefault(sample.row.id, []).append(index)
    batch = [([samples[i].text for i in own], samples[own[0]].row, [scores[i] for i in own]) for own in groups.values()]
    complete = list(scores)
    for own, grouped in zip(groups.values(), group_scores(scorer, batch), strict=True):
        for index, score in zip(own, grouped, strict=True):
            complete[index] = score
    return complete
