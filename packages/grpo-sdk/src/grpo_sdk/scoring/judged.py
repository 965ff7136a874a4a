"""Scores of tasks with judges: rounds between the workers, which run the task's functions, and the judges."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace

from grpo_sdk.endpoints.background import BackgroundLoop
from grpo_sdk.errors import GrpoError, UserError
from grpo_sdk.judges.service import Verdict, service_for
from grpo_sdk.killable.pool import resolved
from grpo_sdk.scoring.wire import abstention
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.judging import Graded, JudgedReward, JudgeQuestion, Pending
from grpo_sdk.task.score import Score, one_line

Ask = Callable[[JudgedReward, JudgeQuestion], "Future[Verdict]"]
"""Asks a judge one question."""

_background = BackgroundLoop("judged")


def ask_judge(judge: JudgedReward, question: JudgeQuestion) -> Future[Verdict]:
    """Ask the model of a judge."""
    return service_for(judge.model).submit(judge, question)


def assume_best(judge: JudgedReward, question: JudgeQuestion) -> Future[Verdict]:
    """The best verdict, of nobody: for checks of a task's own functions."""
    return resolved(Verdict(1.0, "not asked: taken as its maximum"))


def submit_judged(
    task: BoundTask,
    grade: Callable[[Mapping[str, float]], Future[Graded]],
    out_of_time: Callable[[str], Future[Score]],
    ask: Ask,
    finished: Callable[[Score], Score],
) -> Future[Score]:
    """Queue a completion of which judges decide parts; cancelling the future takes their questions back.

    Args:
        task: The task.
        grade: Has a worker score the completion, as far as it can with the raw values that are known.
        out_of_time: Has a worker give the score of a completion that is beyond a limit, by the task's `on_timeout`.
        ask: Asks a judge.
        finished: Called with the score, which it returns.
    """
    asked: list[Future[Verdict]] = []
    judges = {judge.name: judge for judge in task.task.judges()}

    async def judged() -> Score:
        known: dict[str, float] = {}
        reasons: list[str] = []
        while isinstance(graded := await asyncio.wrap_future(grade(known)), Pending):
            asked.extend(ask(judges[name], question) for name, question in graded.questions.items())
            verdicts = await asyncio.gather(*map(asyncio.wrap_future, asked[-len(graded.questions) :]))
            known = dict(graded.parts)
            for name, verdict in zip(graded.questions, verdicts, strict=True):
                if verdict.is_refused:
                    raise UserError(f"{verdict.why}.")
                if verdict.is_too_long:
                    return await asyncio.wrap_future(out_of_time(verdict.why))
                if verdict.value is None:
                    return abstention(verdict.why, task.name, "infrastructure")
                known[name] = verdict.value
                if reason := _reason(verdict.why):
                    reasons.append(f"{name}: {reason}")
        if graded.abstained or not reasons:
            return graded
        return replace(graded, why=one_line("; ".join(filter(None, [graded.why, *reasons]))))

    async def score() -> Score:
        try:
            return finished(await judged())
        except UserError:
            raise
        except GrpoError as error:  # the scorer was closed
            return finished(abstention(str(error), task.name, "infrastructure"))

    def take_back(future: Future[Score]) -> None:
        if future.cancelled():  # at once: until the loop hears of it, others would be asked in their place
            for each in asked:
                each.cancel()

    future = _background.submit(score())
    future.add_done_callback(take_back)
    return future


def _reason(text: str) -> str:
    """A judge's reason without the last line, which is the verdict."""
    return " ".join(text.strip().splitlines()[:-1]) if "verdict-" in text else text
