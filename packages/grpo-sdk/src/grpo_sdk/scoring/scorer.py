from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, Self, TypeVar

from pydantic_core import PydanticSerializationError

from grpo_sdk.errors import DataError, UserError
from grpo_sdk.killable import KillablePool, Outcome
from grpo_sdk.killable.importing import refuse_in_worker
from grpo_sdk.killable.pool import gather_all, resolved, wait_all
from grpo_sdk.killable.ray.cluster import RayCluster
from grpo_sdk.plugins.task_objects import AnyTask, send
from grpo_sdk.plugins.tasks import load_task, received_task
from grpo_sdk.scoring.abstention import ScoreCounts, ScorerStats, check_abstentions, out_of_time_reason
from grpo_sdk.scoring.judged import Ask, ask_judge, submit_judged
from grpo_sdk.scoring.remote import RemoteScoring
from grpo_sdk.scoring.tool_workers import DEFAULT_TOOL_WORKERS, ToolSession, ToolWorkers
from grpo_sdk.scoring.wire import (
    abstention,
    encode,
    graded_of,
    group_parts_of,
    score_of,
    text_of,
    turn_state_of,
)
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.game import Move
from grpo_sdk.task.group_grading import GroupParts
from grpo_sdk.task.judging import Graded, JudgedReward, JudgeQuestion
from grpo_sdk.task.row import Prompt, Row
from grpo_sdk.task.score import Fault, Score
from grpo_sdk.task.turns import TurnState

T = TypeVar("T")

MAX_TEXT_CHARS = 1 << 20
"""Longest completion or prediction that is scored: over ten times what a context of 32,000 tokens usually decodes to.

A longer one is out of its limit as one that takes too long: the task's `on_timeout` says what that means. It is not
truncated, because a score of half a text is a wrong score.
"""

_MODULE = "grpo_sdk.scoring.wire"


class Scorer:
    """Scores completions of one task in killable worker processes.

    A completion whose scoring hangs or kills its worker abstains (`value` None, with the fault and the reason), or is
    wrong if it hangs in a task that says `on_timeout="fail"`; the others are not touched. Works from any thread, from
    asyncio and in forked children (a DataLoader's workers); it pickles, and the copy starts workers of its own. Workers
    load the task by its spec when they are first needed; `warm` starts them ahead.

    Args:
        task: A task, or its spec.
        workers: Processes; by default one per usable core, at most 16.
        timeout_s: Limit per completion, from when its worker begins and without what it waits for a processor (Linux);
            by default the task's own.
        memory_mib: Address space one completion may take (Linux); None is no limit.
        max_abstain_share: If given, `score` and `ascore` raise when a larger share of their batch abstains.
        ask: Asks a task's judges, in this process.
        tool_workers: Processes in which tools run, at most.
        cluster: Ray cluster on whose nodes the workers are; `workers` are those of each node then.

    Raises:
        UserError: no such task or option, or an argument that cannot be meant.
    """

    def __init__(
        self,
        task: AnyTask,
        *,
        workers: int | None = None,
        timeout_s: float | None = None,
        memory_mib: int | None = 4096,
        max_abstain_share: float | None = None,
        ask: Ask = ask_judge,
        tool_workers: int = DEFAULT_TOOL_WORKERS,
        cluster: RayCluster | None = None,
    ) -> None:
        refuse_in_worker("Scorer()")
        self.task = task if isinstance(task, BoundTask) else load_task(task)
        self.timeout_s = self.task.task.timeout_s if timeout_s is None else timeout_s
        if not 0 < self.timeout_s < float("inf"):
            raise UserError(f"timeout_s={timeout_s!r} must be a number of seconds above 0.")
        self.max_abstain_share = max_abstain_share
        if max_abstain_share is not None:
            check_abstentions((), self.task.name, max_abstain_share)
        sent = send(self.task)
        self.ask = ask
        limits = {"timeout_s": timeout_s, "memory_mib": memory_mib, "max_abstain_share": max_abstain_share}
        sizes = {"workers": workers, "tool_workers": tool_workers}
        self._remake = partial(_remade, sent, ask=ask, cluster=cluster, **sizes, **limits)
        self._pool = _pool(self.task, sent, cluster, workers, memory_mib)
        self._counts = ScoreCounts()
        self._fails_on_timeout = self.task.task.on_timeout == "fail"
        self._is_judged = any(isinstance(spec.function, JudgedReward) for spec in self.task.rewards)
        self._tools: ToolWorkers | None = None
        if self.task.task.has_tools:
            self._tools = ToolWorkers(
                self.task,
                sent,
                workers=tool_workers,
                timeout_s=self.timeout_s,
                memory_mib=memory_mib,
                late=self._late if self._fails_on_timeout else None,
                grade=self._grade,
                judged=self._submit_judged,
            )
        self._remote: RemoteScoring | None = None
        if self.task.task.remote is not None:
            self._remote = RemoteScoring(self.task, self._score_reply, self._counts.counted)
        _live.add(self)

    def __repr__(self) -> str:
        return f"Scorer({self.task.spec!r}, workers={self._pool.workers}, timeout_s={self.timeout_s:g})"

    def __reduce__(self) -> tuple[Callable[..., Scorer], tuple[object, ...]]:
        return self._remake, ()

    def score(
        self, texts: Sequence[str], rows: Sequence[Row], predictions: Sequence[Sequence[str]] | None = None
    ) -> list[Score]:
        """Score a batch and wait; scores are in the order of the texts.

        Args:
            texts: Completions, without the prompt and without special tokens.
            rows: Row of each completion.
            predictions: Opponent's answers to each completion, for a task that has an opponent.

        Raises:
            UserError: the lengths differ, or the task has an opponent and there are no predictions.
            DataError: a row is no plain JSON.
            AbstentionLimitError: see `max_abstain_share`.
            InfrastructureError: the scorer is closed.
        """
        return self._checked(wait_all(self._submit_all(texts, rows, predictions)))

    async def ascore(
        self, texts: Sequence[str], rows: Sequence[Row], predictions: Sequence[Sequence[str]] | None = None
    ) -> list[Score]:
        """Like `score`, without blocking the event loop."""
        return self._checked(await gather_all(self._submit_all(texts, rows, predictions)))

    def submit(self, text: str, row: Row, predictions: Sequence[str] | None = None) -> Future[Score]:
        """Queue one completion, so that scoring overlaps with generation; arguments and errors as for `score`."""
        return self._submit(text, _row_json(row), predictions)

    def refuse(self, text: str, row: Row, why: str) -> Future[Score]:
        """Queue a completion that is invalid for a reason which its validator cannot know; see `BoundTask.refuse`."""
        return self._ask("refuse", _row_json(row), self._counted_score, text=text, why=f"invalid: {why}")

    def answer(self, text: str, row: Row) -> Future[str | None]:
        """Queue the validator alone: its answer as Python writes it, or None; see `BoundTask.answer`."""
        return self._ask_text("answer", text, row)

    def prompt(self, row: Row) -> Future[tuple[Prompt | None, str]]:
        """Queue the making of a row's prompt, for a row that somebody else wrote: (prompt, ""), or (None, why)."""
        return self._ask("prompt", _row_json(row), lambda outcome: (text_of(outcome), outcome.why))

    def questions(self, text: str, row: Row) -> Future[Mapping[str, JudgeQuestion]]:
        """Queue what judges are asked about a completion, by the name of the reward; empty where it needs none."""

        def convert(outcome: Outcome) -> Mapping[str, JudgeQuestion]:
            graded = graded_of(outcome, self.task.name)
            return {} if isinstance(graded, Score) else graded.questions

        return self._ask("grade", _row_json(row), convert, text=text, known={})

    def opponent_prompts(self, texts: Sequence[str], rows: Sequence[Row]) -> list[Prompt | None]:
        """The opponent's prompt for each completion of a task that has one, in order.

        None where the opponent is not asked: the validator refuses the completion, or making the prompt crashed or ran
        out of time. `score` with no predictions then says which; errors are those of `score`.
        """
        _check_lengths(self.task.name, texts, rows)
        return wait_all([self._ask_text("opponent_prompt", text, row) for text, row in zip(texts, rows, strict=True)])

    def next_turn(self, moves: Sequence[Move], row: Row) -> Future[TurnState]:
        """Queue the computation of the next turn; a crash or a time-out is the `fault` of the result.

        Args:
            moves: Texts of the turns so far, in a game also the moves of scripted players.
            row: Row of the rollout.
        """
        length = sum(len(str(move)) for move in moves)
        if length > MAX_TEXT_CHARS:
            fault: Fault = "timeout" if self._fails_on_timeout else "infrastructure"
            why = f"turns too long to go on: {length} characters; the limit is {MAX_TEXT_CHARS}"
            return resolved(TurnState(tuple(moves), fault=fault, why=why))
        if self._remote is not None:
            return self._remote.next_turn(moves, row)
        convert = partial(turn_state_of, task=self.task.name, moves=moves)
        return self._ask("next_turn", _row_json(row), convert, moves=list(moves))

    def session(self, row: Row) -> ToolSession:
        """The tools of a new episode of a task that has tools."""
        assert self._tools is not None, f"task {self.task.name} has no tools"
        return self._tools.session(_row_json(row))

    def submit_group(self, texts: Sequence[str], row: Row) -> Future[GroupParts]:
        """Queue the group rewards of a prompt's valid completions; the limit is that of all. See `group_scores`."""
        convert = partial(group_parts_of, task=self.task.name)
        return self._ask("group", _row_json(row), convert, limits=len(texts), texts=list(texts))

    def out_of_time(self, row: Row, why: str) -> Future[Score]:
        """Queue the score of a completion whose limit ran out before it could be scored, by the task's `on_timeout`."""
        return self._ask("out_of_time", _row_json(row), self._counted_score, why=why)

    def warm(self) -> None:
        """Start every worker and wait until all have loaded the task.

        Raises:
            InfrastructureError: one cannot; says why.
        """
        self._pool.warm()

    @property
    def stats(self) -> ScorerStats:
        """Counts of this process so far."""
        pool, tools = self._pool.stats, 0 if self._tools is None else self._tools.restarts
        return replace(self._counts.stats, quarantined=pool.quarantined, restarts=pool.restarts + tools)

    def close(self) -> None:
        """Stop the workers; what has not been scored abstains as `infrastructure`."""
        self._pool.close()
        if self._tools is not None:
            self._tools.close()
        if self._remote is not None:
            self._remote.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _submit_all(
        self, texts: Sequence[str], rows: Sequence[Row], predictions: Sequence[Sequence[str]] | None
    ) -> list[Future[Score]]:
        if isinstance(texts, str):
            raise UserError(f"score() takes a list of completions, not a text: {texts!r:.80}.")
        _check_lengths(self.task.name, texts, rows, predictions)
        rows = list(rows)  # a sequence may make its rows anew, whose ids would be used again
        texts_of_rows = {id(row): _row_json(row) for row in rows}  # the completions of a group share their row
        return [
            self._submit(text, texts_of_rows[id(row)], None if predictions is None else predictions[index])
            for index, (text, row) in enumerate(zip(texts, rows, strict=True))
        ]

    def _submit(self, text: str, row_json: str, predictions: Sequence[str] | None) -> Future[Score]:
        if self.task.opponent is not None and predictions is None:
            raise UserError(
                f"task {self.task.name!r} has an opponent: give the predictions for each completion (an empty list "
                "where it was not asked), from `opponent_prompts` and an engine."
            )
        longest = 0
        for each in (text, *(predictions or ())):
            if not isinstance(each, str):
                raise UserError(f"a completion to score must be text, not {each!r:.40}.")
            longest = max(longest, len(each))
        if longest > MAX_TEXT_CHARS:
            why = f"text too long to be scored: {longest} characters; the limit is {MAX_TEXT_CHARS}"
            if self._fails_on_timeout and len(text) > MAX_TEXT_CHARS:
                why = f"task {self.task.name}: {why}"
                return self._ask("out_of_time", row_json, self._counted_score, why=why)
            return resolved(self._counts.counted(abstention(why, self.task.name, "infrastructure")))
        if self._remote is not None:
            return self._remote.submit(text, row_json)
        if self._is_judged:
            return self._submit_judged(partial(self._grade, text, row_json), row_json)
        return self._ask("grade", row_json, self._counted_score, text=text, predictions=predictions)

    def _grade(self, text: str, row_json: str, known: Mapping[str, float]) -> Future[Graded]:
        return self._ask("grade", row_json, partial(graded_of, task=self.task.name), text=text, known=known)

    def _submit_judged(self, grade: Callable[[Mapping[str, float]], Future[Graded]], row_json: str) -> Future[Score]:
        task = self.task.name

        def out_of_time(why: str) -> Future[Score]:
            return self._ask("out_of_time", row_json, partial(score_of, task=task), why=f"task {task}: {why}")

        return submit_judged(self.task, grade, out_of_time, self.ask, self._counts.counted)

    def _score_reply(self, text: str, row_json: str) -> Future[Score]:
        """Queue the reply of the server of a task."""
        return self._ask("grade", row_json, partial(score_of, task=self.task.name), text=text)

    def _ask(
        self, op: str, row_json: str, convert: Callable[[Outcome], T], *, limits: float = 1, **arguments: object
    ) -> Future[T]:
        """Queue an operation of `wire`; a completion that runs out of time is wrong in a task that says so.

        Not one whose tools are called again: it may be a tool that is slow, which says nothing about the policy.

        Args:
            op: The operation.
            row_json: The row.
            convert: Makes the result of the outcome.
            limits: Factor of the limit.
            arguments: What the operation takes beside the row.
        """
        request = encode({"op": op, "row": row_json, **arguments})
        is_late = self._fails_on_timeout and self._tools is None and op in ("grade", "refuse")
        fallback = partial(self._late, row_json) if is_late else None
        limit_s = self.timeout_s * limits
        if self._tools is None or op != "grade":
            return self._pool.submit_as(request, limit_s, convert, fallback=fallback)
        limit_s, calls = self._tools.repeated(str(arguments["text"]))

        def convert_named(outcome: Outcome) -> T:
            is_lost = calls and outcome.status in ("timeout", "crashed")
            return convert(replace(outcome, why=f"{calls}: {outcome.why}") if is_lost else outcome)

        return self._pool.submit_as(request, limit_s, convert_named)

    def _ask_text(self, op: str, text: str, row: Row) -> Future[Any]:
        """Queue an operation of a completion that gives a text or a prompt, or None."""
        if len(text) > MAX_TEXT_CHARS:
            return resolved(None)
        return self._ask(op, _row_json(row), text_of, text=text)

    def _late(self, row_json: str) -> bytes:
        """Request for the score of a completion whose worker was killed at the limit."""
        why = out_of_time_reason(self.task.name, self.timeout_s)
        return encode({"op": "out_of_time", "row": row_json, "why": why})

    def _counted_score(self, outcome: Outcome) -> Score:
        return self._counts.counted(score_of(outcome, self.task.name))

    def _checked(self, scores: list[Score]) -> list[Score]:
        if self.max_abstain_share is not None:
            check_abstentions(scores, self.task.name, self.max_abstain_share, self.task)
        return scores


def _pool(
    task: BoundTask, sent: tuple[str, ...], cluster: RayCluster | None, workers: int | None, memory_mib: int | None
) -> KillablePool:
    name = f"score-{task.name}"
    if cluster is None:
        return KillablePool(
            f"{_MODULE}:make_handler", args=sent, workers=workers, memory_mib=memory_mib, name=name, preload=_MODULE
        )
    from grpo_sdk.scoring.cluster import node_pool  # which most processes never need

    return node_pool(task, sent, cluster, workers=workers, memory_mib=memory_mib, name=name)


def _remade(sent: tuple[str, ...], **options: Any) -> Scorer:
    return Scorer(received_task(*sent), **options)


def score(task: AnyTask, text: str, row: Row, predictions: Sequence[str] | None = None, **options: Any) -> Score:
    """Score one completion in a killable worker, which stays for the next one.

    Args:
        task: A task, or its spec.
        text: The completion, without the prompt and without special tokens.
        row: Row of the completion.
        predictions: Opponent's answers, for a task that has an opponent.
        options: Options of the task by name.

    Raises:
        UserError: no such task or option, or an object that the worker cannot get.
        DataError: the row is no plain JSON.
    """
    scorer = shared_scorer(load_task(task, **options))
    return scorer.score([text], [row], None if predictions is None else [predictions])[0]


def shared_scorer(task: AnyTask) -> Scorer:
    """The process's scorer of a task, for what gets one completion at a time; closed at exit."""
    bound = load_task(task)
    return _shared_scorer(_Shared(send(bound), bound))


@dataclass(frozen=True, slots=True)
class _Shared:
    """A task by what workers get: a notebook's cell that has run again may have changed a function that it calls."""

    sent: tuple[str, ...]
    task: BoundTask = field(compare=False)


@lru_cache(maxsize=8)
def _shared_scorer(shared: _Shared) -> Scorer:
    """One scorer of a task.

    The cache is also the lock-free kind of singleton that survives a fork. A scorer that falls out of it ends when its
    last user drops it.
    """
    return Scorer(shared.task)


def _check_lengths(
    task: str, texts: Sequence[str], rows: Sequence[Row], predictions: Sequence[Sequence[str]] | None = None
) -> None:
    if len(rows) != len(texts) or (predictions is not None and len(predictions) != len(texts)):
        counts = f"{len(texts)} texts, {len(rows)} rows"
        if predictions is not None:
            counts += f", {len(predictions)} lists of predictions"
        raise UserError(f"task {task!r}: {counts}; give one of each per completion.")


def _row_json(row: Row) -> str:
    if not isinstance(row, Row):
        raise UserError(
            f"a row must be a Row, not a {type(row).__name__}: load_task(…).rows() has them, and row_from_json(…) "
            "reads one from JSON."
        )
    try:
        return row.model_dump_json()
    except PydanticSerializationError as error:
        raise DataError(f"row {row.id!r} is no plain JSON: {error}") from None


_live: weakref.WeakSet[Scorer] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    # The lock may have been held by a thread that does not exist here.
    for scorer in list(_live):
        scorer._counts.reset()


os.register_at_fork(after_in_child=_after_fork_in_child)
