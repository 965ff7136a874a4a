"""Scores of tasks with judges: rounds between the workers, which run the task's functions, and the judges."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations

from grpo_sdk.errors import GrpoError, UserError
from grpo_sdk.judges.service import Verdict, service_for
from grpo_sdk.killable import KillablePool, Outcome
from grpo_sdk.killable.pool import WaitAll, resolved, wait_all
from grpo_sdk.scoring.wire import JUDGED, abstention, encode_out_of_time, encode_request, graded_of, score_of
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.group_grading import GroupParts
from grpo_sdk.task.judging import JudgedReward, JudgeQuestion
from grpo_sdk.task.score import Fault, Score, one_line

Ask = Callable[[JudgedReward, JudgeQuestion], "Future[Verdict]"]
"""Asks a judge one question."""


def ask_judge(judge: JudgedReward, question: JudgeQuestion) -> Future[Verdict]:
    """Ask the model of a judge."""
    return service_for(judge.model).submit(judge, question)


def assume_best(judge: JudgedReward, question: JudgeQuestion) -> Future[Verdict]:
    """The best verdict, of nobody: for checks of a task's own functions."""
    return resolved(Verdict(1.0, "not asked: taken as its maximum"))


@dataclass(frozen=True, slots=True)
class JudgedScoring:
    """How the completions of a task with judges are scored.

    Attributes:
        task: The task.
        pool: Its workers.
        timeout_s: Limit of the task's functions, in each round; that of a judge is its own.
        ask: Asks a judge.
        finished: Called with every score, which it returns.
    """

    task: BoundTask
    pool: KillablePool
    timeout_s: float
    ask: Ask
    finished: Callable[[Score], Score]

    @property
    def is_needed(self) -> bool:
        """Whether judges decide a part of a completion by itself."""
        return any(isinstance(spec.function, JudgedReward) for spec in self.task.rewards)

    def questions(self, text: str, row_json: str) -> Future[Mapping[str, JudgeQuestion]]:
        """Queue the computation of what judges are asked about a completion, by name; empty where it needs none."""
        request = JUDGED + encode_request(text, row_json, ["{}"])

        def convert(outcome: Outcome) -> Mapping[str, JudgeQuestion]:
            graded = graded_of(outcome, self.task.name)
            return {} if isinstance(graded, Score) else graded.questions

        return self.pool.submit_as(request, self.timeout_s, convert)

    def submit(self, text: str, row_json: str, fallback: bytes | None) -> Future[Score]:
        """Queue one completion; see `Scorer.submit`.

        Args:
            text: The completion.
            row_json: Its row.
            fallback: Request to a worker that follows one that timed out.
        """
        completion = _Completion(self, text, row_json, fallback)
        completion.grade({})
        return completion.future


class _Completion:
    """One completion on its way between workers and judges; its callbacks run in their threads."""

    def __init__(self, scoring: JudgedScoring, text: str, row_json: str, fallback: bytes | None) -> None:
        self.future: Future[Score] = Future()
        self.future.add_done_callback(self._cancelled)
        self._scoring, self._text, self._row_json, self._fallback = scoring, text, row_json, fallback
        self._lock = threading.Lock()
        self._waiting: list[Future[Verdict]] = []
        self._reasons: dict[str, str] = {}
        self._judges = {judge.name: judge for judge in scoring.task.task.judges()}

    def grade(self, known: Mapping[str, float]) -> None:
        """Have a worker score the completion, as far as it can."""
        scoring = self._scoring
        request = JUDGED + encode_request(self._text, self._row_json, [json.dumps(dict(known))])
        convert = partial(graded_of, task=scoring.task.name)
        graded = scoring.pool.submit_as(request, scoring.timeout_s, convert, fallback=self._fallback)
        graded.add_done_callback(lambda done: self._guarded(lambda: self._graded(done.result())))

    def _graded(self, graded: object) -> None:
        if isinstance(graded, Score):
            self._resolve(graded)
            return
        questions: Mapping[str, JudgeQuestion] = graded.questions  # type: ignore[attr-defined] # a Pending
        parts: Mapping[str, float] = graded.parts  # type: ignore[attr-defined] # as above
        futures = {name: self._scoring.ask(self._judges[name], question) for name, question in questions.items()}
        with self._lock:
            self._waiting = list(futures.values())
        left = [len(futures)]

        def judged(_: Future[Verdict]) -> None:
            with self._lock:
                left[0] -= 1
                is_last = left[0] == 0
            if is_last and not self.future.cancelled():
                self._guarded(lambda: self._judged(parts, {name: each.result() for name, each in futures.items()}))

        for future in futures.values():
            future.add_done_callback(judged)
        if self.future.cancelled():  # before there was anything to cancel
            self._cancelled(self.future)

    def _judged(self, parts: Mapping[str, float], verdicts: Mapping[str, Verdict]) -> None:
        for verdict in verdicts.values():
            if verdict.is_refused:
                raise UserError(f"{verdict.why}.")
            if verdict.is_too_long:
                self._out_of_time(verdict.why)
                return
            if verdict.value is None:
                self._resolve(abstention(verdict.why, self._scoring.task.name, "infrastructure"))
                return
        self._reasons |= {name: verdict.why for name, verdict in verdicts.items()}
        self.grade({**parts, **{name: each.value for name, each in verdicts.items() if each.value is not None}})

    def _out_of_time(self, why: str) -> None:
        """Have a worker give the score of a completion that is beyond a limit, by the task's `on_timeout`."""
        scoring = self._scoring
        request = encode_out_of_time(self._row_json, f"task {scoring.task.name}: {why}")
        scored = scoring.pool.submit_as(request, scoring.timeout_s, partial(score_of, task=scoring.task.name))
        scored.add_done_callback(lambda done: self._guarded(lambda: self._resolve(done.result())))

    def _resolve(self, score: Score) -> None:
        if not score.abstained and self._reasons:
            reasons = [f"{name}: {_reason(text)}" for name, text in self._reasons.items() if _reason(text)]
            score = replace(score, why=one_line("; ".join(filter(None, [score.why, *reasons]))))
        if self.future.set_running_or_notify_cancel():
            self.future.set_result(self._scoring.finished(score))

    def _guarded(self, step: Callable[[], None]) -> None:
        """Take a step; what it raises is the completion's result, or its abstention where the scorer is closed."""
        try:
            step()
        except GrpoError as error:
            if isinstance(error, UserError):
                self._fail(error)
            else:
                self._resolve(abstention(str(error), self._scoring.task.name, "infrastructure"))
        except BaseException as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)

    def _cancelled(self, future: Future[Score]) -> None:
        if future.cancelled():
            with self._lock:
                waiting = list(self._waiting)
            for each in waiting:
                each.cancel()


def _reason(text: str) -> str:
    """A judge's reason without the last line, which is the verdict."""
    return " ".join(text.strip().splitlines()[:-1]) if "verdict-" in text else text


def with_verdicts(
    task: BoundTask, groups: Sequence[GroupParts], ask: Ask, wait: WaitAll = wait_all
) -> list[GroupParts]:
    """Group rewards with those that judges decide, which are asked about all groups at once.

    Args:
        task: The task.
        groups: Group rewards of several prompts.
        ask: Asks a judge.
        wait: Waits for verdicts.

    Raises:
        UserError: a judge cannot be asked before the user changes something.
    """
    judges = {judge.name: judge for judge in task.task.judges()}
    comparisons_of: list[tuple[int, str, dict[tuple[int, int], Future[Verdict]]]] = [
        (number, name, _compare(judges[name], question, ask))
        for number, group in enumerate(groups)
        for name, question in group.questions.items()
    ]
    wait([future for _, _, comparisons in comparisons_of for future in comparisons.values()])
    completed = list(groups)
    for number, name, comparisons in comparisons_of:
        verdicts = {pair: future.result() for pair, future in comparisons.items()}
        rates = _win_rates(judges[name], groups[number].questions[name], verdicts, task)
        group = completed[number]
        completed[number] = replace(
            group,
            parts={**group.parts, name: [rate.value for rate in rates]},
            reasons={**group.reasons, name: [rate.why for rate in rates]},
            faults={**group.faults, name: [rate.fault for rate in rates]},
        )
    return completed


def pairs(count: int, comparisons: int | None) -> list[tuple[int, int]]:
    """The pairs that are compared: all, or for each answer the `comparisons` that stand next to it in a ring."""
    if comparisons is None or comparisons >= count - 1:
        return list(combinations(range(count), 2))
    return [(one, (one + step) % count) for step in range(1, comparisons // 2 + 1) for one in range(count)]


def _compare(judge: JudgedReward, question: JudgeQuestion, ask: Ask) -> dict[tuple[int, int], Future[Verdict]]:
    """Both orders of every pair; equal texts are a tie that nobody is asked about."""
    comparisons = {}
    readable = [index for index in range(len(question.texts)) if index not in question.too_long]
    for place, other_place in pairs(len(readable), judge.comparisons):
        one, other = readable[place], readable[other_place]
        for first, second in ((one, other), (other, one)):
            texts = (question.texts[first], question.texts[second])
            is_tie = texts[0] == texts[1]
            comparisons[first, second] = (
                resolved(Verdict(0.5, "equal texts"))
                if is_tie
                else ask(judge, replace(question, texts=texts, too_long=()))
            )
    return comparisons


@dataclass(frozen=True, slots=True)
class _WinRate:
    """Mean value of an answer over its pairs; None with the reason and the fault where it has none."""

    value: float | None
    why: str = ""
    fault: Fault = ""


def _win_rates(
    judge: JudgedReward, question: JudgeQuestion, verdicts: Mapping[tuple[int, int], Verdict], task: BoundTask
) -> list[_WinRate]:
    """The mean value of each answer over the pairs of which both orders have a verdict.

    An answer that is too long for the judge abstains, or loses where the task's `on_timeout` is `fail`; of a pair that
    does not fit the judge's model, the longer one is. One that is left with nobody to be compared with gets 0, as every
    lone one does.
    """
    won: list[list[float]] = [[] for _ in question.texts]
    reasons = [""] * len(question.texts)
    limit = f"too long for judge {judge.name}; the limit is {judge.max_chars} characters"
    too_long = dict.fromkeys(question.too_long, limit)
    for (first, second), verdict in verdicts.items():
        other = verdicts[second, first]
        for missing in (verdict, other):
            if missing.is_refused:
                raise UserError(f"{missing.why}.")
            if missing.is_too_long:
                too_long[max(first, second, key=lambda index: len(question.texts[index]))] = missing.why
            elif missing.value is None:
                reasons[first] = reasons[first] or missing.why
        if verdict.value is not None and other.value is not None:
            won[first].append((verdict.value + 1 - other.value) / 2)
    abstains = task.task.on_timeout == "abstain"
    rates = []
    for index, (values, why) in enumerate(zip(won, reasons, strict=True)):
        if values:
            rates.append(_WinRate(sum(values) / len(values)))
        elif index in too_long:
            rates.append(_WinRate(None, too_long[index], "timeout") if abstains else _WinRate(0.0))
        else:
            rates.append(_WinRate(None, why, "infrastructure") if why else _WinRate(0.0))
    return rates
