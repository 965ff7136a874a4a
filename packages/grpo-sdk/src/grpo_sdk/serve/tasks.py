"""The tasks that a server offers: their rows, their scores, and the workers of those that are in use."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from itertools import chain, islice
from typing import Any, get_args

import prometheus_client
from starlette.exceptions import HTTPException

from grpo_sdk.endpoints.base import SampleKey
from grpo_sdk.episodes.opponents import endpoint_opponent, opponent_of, play_opponents
from grpo_sdk.errors import MAX_NAME_CHARS, GrpoError, UserError, near_match, unknown_name
from grpo_sdk.scoring.abstention import ScorerStats
from grpo_sdk.scoring.groups import group_scores
from grpo_sdk.scoring.scorer import Scorer
from grpo_sdk.serve.body import bad_request
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.marks import cut_at_stop, strip_end_tokens
from grpo_sdk.task.row import Row, Split
from grpo_sdk.task.score import Score

MAX_SCORERS = 16
"""Tasks whose worker processes run at the same time; beyond it, those of the task not used for longest end."""


SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the classes of durations."""

MAX_COMPARED = 1000
"""Ids that an unknown one is compared with, to name the closest: a millisecond."""


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


class ServedTask:
    """One task of a server.

    Args:
        label: Name in paths.
        task: The task.
        server: All tasks of the server.

    Attributes:
        label: Name in paths.
        task: The task.
        server: All tasks of the server.
        opponent: Sampler of the opponent's answers; None where the task has none, or the server has no sampler for it.
    """

    def __init__(self, label: str, task: BoundTask, server: ServedTasks) -> None:
        self.label, self.task, self.server = label, task, server
        self.opponent = endpoint_opponent(task, server.opponent_url)
        self._rows: dict[str, dict[str, Row]] = {}
        self._lock = threading.Lock()
        self._loading = asyncio.Lock()  # so that whoever waits for rows takes no thread

    @property
    def kind(self) -> str:
        """`single-turn`, `multi-turn` or `game`."""
        if self.task.task.game is not None:
            return "game"
        return "multi-turn" if self.task.has_turns else "single-turn"

    @property
    def splits(self) -> tuple[Split, ...]:
        """Splits in the order in which a row is looked for: that of the task's options first."""
        own = self.task.config.split
        return (own, *(split for split in get_args(Split) if split != own))

    async def rows(self, split: str | None = None) -> list[Row]:
        """Rows of a split, by default that of the task's options.

        Raises:
            HTTPException: there is no such split, or its rows cannot be loaded.
        """
        return list((await self._by_id(self.task.config.split if split is None else split)).values())

    async def row(self, reference: Any, split: str | None = None) -> Row:
        """Find or read a row.

        Args:
            reference: Id of a row, a whole row as an object, or a whole row as JSON text, as trainers carry it.
            split: Split to look in; by default all of them, that of the task's options first.

        Raises:
            HTTPException: there is no such row, or it does not fit the task.
        """
        if isinstance(reference, dict):
            reference = json.dumps(reference)
        if not isinstance(reference, str):
            raise bad_request("no row: give its id, or the whole row as an object or as JSON text.")
        if reference.lstrip().startswith("{"):
            try:
                return self.task.row_from_json(reference)
            except (UserError, RecursionError) as error:
                raise bad_request(str(error)) from None
        for name in self.splits if split is None else (split,):
            try:
                rows = await self._by_id(name)
            except HTTPException:
                if split is not None or name == self.task.config.split:
                    raise
                continue  # a split that this task does not have
            if reference in rows:
                return rows[reference]
        name, where = reference[:MAX_NAME_CHARS], f"split {split}" if split else "any split"
        known = list(islice(chain.from_iterable(self._rows.values()), MAX_COMPARED))
        near = await asyncio.to_thread(near_match, name, known)
        raise HTTPException(HTTPStatus.NOT_FOUND, f"task {self.label!r} has no row {name!r} in {where}.{near}")

    async def _by_id(self, split: str) -> Mapping[str, Row]:
        if split not in self.splits:
            raise bad_request(f"split {split[:40]!r} must be {', '.join(get_args(Split))}.")
        if split not in self._rows:
            async with self._loading:
                await asyncio.to_thread(self._load, split)
        return self._rows[split]

    def _load(self, split: str) -> None:
        with self._lock:  # also where whoever awaited this has gone
            if split in self._rows:
                return
            task = self.task if split == self.task.config.split else self.task.with_options(split=split)
            try:
                self._rows[split] = {row.id: row for row in task.rows()}
            except GrpoError as error:
                raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, str(error)) from None

    def completion(self, text: Any) -> str:
        """The completion in a text that another trainer decoded: without end tokens, up to the task's stop string.

        Raises:
            HTTPException: it is no text.
        """
        if not isinstance(text, str):
            raise bad_request(f"a completion is text, not a {type(text).__name__}.")
        return cut_at_stop(strip_end_tokens(text, self.server.end_tokens), self.task.task.stop)[0]

    async def score(self, samples: Sequence[Sample]) -> list[Score]:
        """Score completions; those of one row are a group where the task compares them.

        Raises:
            HTTPException: the task has an opponent, and there are neither predictions nor a sampler of them.
        """
        with self.server.scorer(self) as scorer:
            if self.task.opponent is not None and any(sample.predictions is None for sample in samples):
                self.check_single_completion("grpo serve")
                scores = await asyncio.to_thread(self._with_opponent, scorer, samples)
            else:
                futures = [scorer.submit(sample.text, sample.row, sample.predictions) for sample in samples]
                scores = await asyncio.gather(*map(asyncio.wrap_future, futures))
            if self.task.task.group_specs():
                scores = await asyncio.to_thread(_with_group_rewards, scorer, samples, scores)
        self.server.metrics.count_scores(self.label, scores)
        return scores

    def _with_opponent(self, scorer: Scorer, samples: Sequence[Sample]) -> list[Score]:
        assert self.opponent is not None
        keys = [SampleKey(0, 0, f"{self.label}/{sample.row.id}", index) for index, sample in enumerate(samples)]
        texts, rows = [sample.text for sample in samples], [sample.row for sample in samples]
        return play_opponents(scorer, texts, rows, self.opponent, keys=keys).scores

    def check_single_completion(self, protocol: str) -> None:
        """Check that a completion by itself can be scored, as other trainers' protocols send it.

        Raises:
            HTTPException: the task has tools or several turns, compares the completions of a prompt, or has an opponent
                that this server cannot ask.
        """
        why = ""
        if self.task.task.has_tools:
            why = "has tools: play it with OpenEnv's reset and step, or send finished episodes to /score"
        elif self.task.has_turns:
            kind = "a game" if self.kind == "game" else "a task of several turns"
            why = f"is {kind}: play it with OpenEnv's reset and step"
        elif self.task.task.group_specs():
            why = "compares the completions of a prompt: send all of them to /score in one request"
        elif self.task.opponent is not None and self.opponent is None:
            why = "has an opponent: start grpo serve with --opponent-url, or send its predictions to /score"
        if why:
            raise HTTPException(HTTPStatus.NOT_IMPLEMENTED, f"{protocol}: task {self.label!r} {why}.")

    def check_playable(self) -> None:
        """Check that the task can be played turn by turn.

        Raises:
            HTTPException: it cannot; says why.
        """
        if self.task.has_turns:
            if opponent_of(self.task) is not None and self.opponent is None:
                why = f"plays against the model {getattr(self.task.config, 'opponent', '')!r}, which is not here"
                raise HTTPException(HTTPStatus.NOT_IMPLEMENTED, f"OpenEnv: task {self.label!r} {why}.")
            return
        self.check_single_completion("OpenEnv")


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


class Metrics:
    """Counts of a server."""

    content_type = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(self) -> None:
        self._registry = prometheus_client.CollectorRegistry()  # its own: several servers may run in one process
        self._requests = prometheus_client.Counter(
            "grpo_serve_requests", "Requests answered.", ["protocol", "status"], registry=self._registry
        )
        self._seconds = prometheus_client.Histogram(
            "grpo_serve_request_seconds",
            "Duration of a request from its head to its answer, waiting for a worker included.",
            ["protocol"],
            buckets=SECONDS,
            registry=self._registry,
        )
        self._completions = prometheus_client.Counter(
            "grpo_serve_completions",
            "Completions by outcome: solved, unsolved, or why there is no score (reward, timeout, infrastructure).",
            ["task", "outcome"],
            registry=self._registry,
        )

    def watch(self, name: str, help_line: str, value: Callable[[], float]) -> None:
        """Add a gauge whose value is computed when it is read."""
        prometheus_client.Gauge(f"grpo_serve_{name}", help_line, registry=self._registry).set_function(value)

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
        return prometheus_client.generate_latest(self._registry)


class ServedTasks:
    """The tasks of a server; used from its event loop.

    Args:
        tasks: The tasks.
        make_scorer: Makes the scorer of a task.
        opponent_url: Endpoint that plays the opponents of tasks that have one.
        end_tokens: Texts that are removed from the end of a completion that a trainer decoded with special tokens.

    Attributes:
        by_label: Name in paths -> task; a number follows where several have the same name.
        metrics: Counts.
    """

    def __init__(
        self,
        tasks: Sequence[BoundTask],
        make_scorer: Callable[[BoundTask], Scorer],
        opponent_url: str | None,
        end_tokens: tuple[str, ...],
    ) -> None:
        self.opponent_url, self.end_tokens = opponent_url, end_tokens
        self.metrics = Metrics()
        self.by_label: dict[str, ServedTask] = {}
        seen: Counter[str] = Counter()
        for task in tasks:
            seen[task.label] += 1
            label = task.label if seen[task.label] == 1 else f"{task.label}-{seen[task.label]}"
            self.by_label[label] = ServedTask(label, task, self)
        self._make_scorer = make_scorer
        self._scorers: OrderedDict[str, Scorer] = OrderedDict()
        self._users: dict[str, int] = {}

    def __getitem__(self, label: str | None) -> ServedTask:
        """The task of a label, or the only one.

        Raises:
            HTTPException: there is none, or none is named where there are several.
        """
        if label is None:
            if len(self.by_label) != 1:
                raise HTTPException(
                    HTTPStatus.NOT_FOUND, "this server has several tasks: put one into the path, /TASK/…; GET /tasks."
                )
            return next(iter(self.by_label.values()))
        if label not in self.by_label:
            raise HTTPException(HTTPStatus.NOT_FOUND, str(unknown_name("task", label[:MAX_NAME_CHARS], self.by_label)))
        return self.by_label[label]

    @contextmanager
    def scorer(self, task: ServedTask) -> Iterator[Scorer]:
        """The scorer of a task, which is kept while the block runs."""
        scorer = self._scorers.get(task.label)
        if scorer is None:
            self._close_idle()
            scorer = self._scorers[task.label] = self._make_scorer(task.task)
        self._scorers.move_to_end(task.label)
        self._users[task.label] = self._users.get(task.label, 0) + 1
        try:
            yield scorer
        finally:
            self._users[task.label] -= 1

    def warm(self) -> None:
        """Start the workers of every task, as far as they may run at the same time, and wait for them.

        Raises:
            InfrastructureError: one cannot start.
        """
        for task in list(self.by_label.values())[:MAX_SCORERS]:
            with self.scorer(task) as scorer:
                scorer.warm()

    @property
    def stats(self) -> Mapping[str, ScorerStats]:
        """Counts of the scorers whose workers run, by label."""
        return {label: scorer.stats for label, scorer in self._scorers.items()}

    def close(self) -> None:
        """End all workers."""
        for scorer in self._scorers.values():
            scorer.close()

    def _close_idle(self) -> None:
        idle = [label for label in self._scorers if not self._users.get(label)]
        for label in idle[: max(0, len(self._scorers) - MAX_SCORERS + 1)]:
            self._scorers.pop(label).close()
