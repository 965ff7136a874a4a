"""A task's rows answered `n` times each and scored: what every evaluation does, whoever answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from grpo_core.engines.base import SampleKey, Sampling, StopRequested
from grpo_core.errors import InfrastructureError
from grpo_core.evaluation.conversations import converse
from grpo_core.evaluation.results import Evaluation
from grpo_core.evaluation.sampling import Question, Sampled, Sampler
from grpo_core.evaluation.surprisal import ROWS_AT_ONCE, Certainty, certainty
from grpo_core.policy.memory import peak_memory_mib
from grpo_core.policy.policy import Policy
from grpo_core.rollouts.opponents import OpponentSampler, play_opponents
from grpo_core.scoring import Scorer, reason_head
from grpo_core.task.bound import BoundTask
from grpo_core.task.row import Row
from grpo_core.task.score import Score

EVALUATION_STEP = 0
"""The step in sampling keys of an evaluation: training steps count from 1, so no random number is used twice."""


def evaluate_rows(
    task: BoundTask,
    rows: Sequence[Row],
    *,
    sampler: Sampler,
    scorer: Scorer,
    sampling: Sampling,
    seed: int,
    n: int = 1,
    opponent: OpponentSampler | None = None,
    measured: Policy | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    should_stop: Callable[[], bool] = lambda: False,
    warn: Callable[[str], None] = lambda message: None,
) -> Evaluation:
    """Answer every row `n` times and score the answers, which overlaps with the sampling.

    Args:
        task: The task.
        rows: Its held-out rows.
        sampler: Who answers.
        scorer: Of the task.
        sampling: Greedy at temperature 0.
        seed: Of the random numbers above temperature 0.
        n: Completions a row.
        opponent: For a task that has one.
        measured: The policy that answers, to measure its surprisal and entropy too; None leaves them out.
        progress: Told (completions done, completions) after each.
        should_stop: Asked after every completion.
        warn: Told once when memory ran out.

    Raises:
        StopRequested: `should_stop` said so.
        InfrastructureError: whoever answers failed every time; says why.
    """
    started = time.perf_counter()
    prompts = [task.prompt(row) for row in rows]
    questions = [
        Question(
            prompts[index],
            SampleKey(seed, EVALUATION_STEP, f"{task.name}/{row.id}", sample),
            task.task.stop,
            task.task.max_completion_length,
        )
        for index, row in enumerate(rows)
        for sample in range(n)
    ]
    asked = [row for row in rows for _ in range(n)]
    answers: dict[int, Sampled] = {}
    futures: dict[int, Future[Score]] = {}
    if task.has_turns:
        several, futures = converse(
            task,
            asked,
            questions,
            sampler=sampler,
            scorer=scorer,
            sampling=sampling,
            opponent=opponent,
            progress=progress,
            should_stop=should_stop,
        )
        answers = dict(enumerate(several))
    else:
        for index, answer in sampler.sample(questions, sampling):
            if should_stop():
                raise StopRequested
            answers[index] = answer
            if opponent is None and not answer.error:
                futures[index] = scorer.submit(answer.text, asked[index])
            progress(len(answers), len(questions))
    ordered = [answers[index] for index in range(len(questions))]
    if ordered and all(answer.error and not answer.is_too_long for answer in ordered):
        raise InfrastructureError(f"task {task.name}: none of {len(ordered)} completions came: {ordered[0].error}")
    if opponent is not None and not task.has_turns:
        futures = _play(scorer, ordered, asked, opponent, questions)
    scores = [
        Score(None, why=f"no completion: {answer.error}", fault="infrastructure")
        if answer.error
        else futures[index].result()
        for index, answer in enumerate(ordered)
    ]
    return Evaluation(
        rows=rows,
        texts=[answer.text for answer in ordered],
        lengths=[answer.length for answer in ordered],
        truncated=[answer.is_truncated for answer in ordered],
        scores=scores,
        temperature=sampling.temperature,
        split=task.config.split,
        n=n,
        top_p=sampling.top_p,
        certainty=() if measured is None else _certainty(measured, ordered, warn),
        seconds=time.perf_counter() - started,
        peak_memory_mib=peak_memory_mib(None if measured is None else measured.device),
    )


def unscored(evaluation: Evaluation) -> dict[str, int]:
    """Why completions abstained, each kind of reason once, and how many did."""
    counts: dict[str, int] = {}
    first: dict[str, str] = {}
    for score in evaluation.scores:
        if score.abstained:
            why = first.setdefault(reason_head(score.why), f"({score.fault}) {score.why}")
            counts[why] = counts.get(why, 0) + 1
    return counts


def _certainty(policy: Policy, answers: Sequence[Sampled], warn: Callable[[str], None]) -> tuple[Certainty | None, ...]:
    known = [index for index, answer in enumerate(answers) if answer.token_ids]
    found = certainty(
        policy,
        [answers[index].prompt_ids for index in known],
        [answers[index].token_ids for index in known],
        rows_at_once=ROWS_AT_ONCE,
        warn=warn,
    )
    by_index = dict(zip(known, found, strict=True))
    return tuple(by_index.get(index) for index in range(len(answers)))


def _play(
    scorer: Scorer,
    answers: Sequence[Sampled],
    rows: Sequence[Row],
    opponent: OpponentSampler,
    questions: Sequence[Question],
) -> dict[int, Future[Score]]:
    known = [index for index, answer in enumerate(answers) if not answer.error]
    scores = play_opponents(
        scorer,
        [answers[index].text for index in known],
        [rows[index] for index in known],
        opponent,
        keys=[questions[index].key for index in known],
    )
    made: dict[int, Future[Score]] = {}
    for index, score in zip(known, scores, strict=True):
        made[index] = Future()
        made[index].set_result(score)
    return made
