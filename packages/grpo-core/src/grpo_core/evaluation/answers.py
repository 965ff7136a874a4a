"""A task's rows, answered and scored: what every evaluation does, with a model of this process or an endpoint.

Without torch, where an endpoint answers.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from grpo_core.evaluation.held_out import HeldOutTask
from grpo_core.evaluation.results import COLUMNS, Certainty, Evaluation, TokenStatistics
from grpo_core.evaluation.sampling import EndpointSampler, Question, Sampled, Sampler
from grpo_core.evaluation.settings import EvaluationSettings, ModelOptions
from grpo_core.policy.memory_meter import peak_memory_mib
from grpo_core.rollouts.task_scoring import Scoring
from grpo_sdk.callbacks import Callbacks
from grpo_sdk.endpoints.base import SampleKey, Sampling, StopRequested
from grpo_sdk.episodes.episode import Episode, Reply
from grpo_sdk.episodes.opponents import Unanswered, play_opponents
from grpo_sdk.episodes.player import Player, play
from grpo_sdk.errors import EngineError, InfrastructureError, UserError
from grpo_sdk.killable.pool import resolved
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.row import Row
from grpo_sdk.task.score import Score

if TYPE_CHECKING:
    from grpo_core.policy.policy import Policy
    from grpo_core.policy.ranks import Ranks

_STOPPED = b"stopped"
"""What a rank says in place of its part, where it was asked to stop."""

EVALUATION_STEP = 0
"""The step in sampling keys of an evaluation: training steps count from 1, so no random number is used twice."""


@dataclass(frozen=True, slots=True)
class EvaluatedModel:
    """The model that is evaluated.

    Attributes:
        sampler: Generates the completions.
        policy: The sampler's model, where it runs in this process.
        ranks: The processes that share the rows; None where an endpoint answers.
        start: The policy of the opponent `base`; None is `policy`.
    """

    sampler: Sampler
    policy: Policy | None = None
    ranks: Ranks | None = None
    start: Policy | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationHooks:
    """Functions that an evaluation calls while it runs.

    Attributes:
        progress: Receives (completions done, completions) after each.
        should_stop: Whether to stop; called after every completion.
        warn: Receives a warning when memory ran out.
    """

    progress: Callable[[int, int], None] = lambda done, total: None
    should_stop: Callable[[], bool] = lambda: False
    warn: Callable[[str], None] = lambda message: None


def evaluate_tasks(
    tasks: Mapping[str, HeldOutTask],
    model: EvaluatedModel,
    options: ModelOptions,
    callbacks: Callbacks,
    should_stop: Callable[[], bool] = lambda: False,
) -> dict[str, Evaluation]:
    """Evaluate a model on tasks, one after the other.

    Args:
        tasks: Tasks by label.
        model: The model that answers.
        options: How the scorers are set up.
        callbacks: Notified of progress and warnings.
        should_stop: Whether to stop; called after every completion.

    Returns:
        Task label -> evaluation.

    Raises:
        StopRequested: `should_stop` is true.
    """
    results = {}
    for label, held in tasks.items():
        hooks = EvaluationHooks(
            progress=partial(callbacks.on_progress, f"evaluating {label}"),
            should_stop=should_stop,
            warn=callbacks.warn_once,
        )
        with Scoring({label: held.task}, options.scoring, model.start or model.policy) as scorers:
            results[label] = evaluate_rows(held, held.rows, model, scorers[label], hooks)
        for warning in results[label].unscored(label):
            callbacks.warn_once(warning)
    return results


def evaluate_rows(
    held: HeldOutTask,
    rows: Sequence[Row],
    model: EvaluatedModel,
    scoring: Player,
    hooks: EvaluationHooks | None = None,
) -> Evaluation:
    """Answer every row as often as the settings say, and score the completions while others are sampled.

    Args:
        held: The task, with the number of completions per row and how they are sampled.
        rows: Some of its rows, or all.
        model: The model; each of its ranks evaluates a share of the rows.
        scoring: The task's scorer and opponent.
        hooks: Called while the evaluation runs.

    Raises:
        StopRequested: a rank was asked to stop.
        InfrastructureError: every completion failed; says why.
    """
    hooks, policy = hooks or EvaluationHooks(), model.policy
    if policy is None or model.ranks is None:
        return _evaluate(held, rows, model, scoring, hooks)

    def evaluate(share: Sequence[Row]) -> Evaluation:
        with policy.precision():
            return _evaluate(held, share, model, scoring, hooks)

    return evaluate_together(rows, evaluate, model.ranks, policy.in_step)


def _evaluate(
    held: HeldOutTask, rows: Sequence[Row], model: EvaluatedModel, scoring: Player, hooks: EvaluationHooks
) -> Evaluation:
    task, settings, started = held.task, held.settings, time.perf_counter()
    questions = _questions(task, rows, settings)
    repeated = [row for row in rows for _ in range(settings.n)]  # the row of each question
    if task.has_turns:
        answers, futures = converse(task, repeated, questions, model.sampler, settings.sampling, scoring, hooks)
    else:
        sampling = replace(settings.sampling, certainty=model.policy is not None and settings.surprisal)
        answers, futures = _answer(repeated, questions, model.sampler, sampling, scoring, hooks)
    if answers and all(answer.error and not answer.is_too_long for answer in answers):
        raise InfrastructureError(f"task {task.name}: none of {len(answers)} completions came: {answers[0].error}")
    if scoring.opponent is not None and not task.has_turns:
        futures = _play(scoring, answers, repeated, questions)
    scores = [
        Score(None, why=f"no completion: {answer.error}", fault="infrastructure")
        if answer.error
        else futures[index].result()
        for index, answer in enumerate(answers)
    ]
    measured = model.policy if settings.surprisal else None
    return Evaluation(
        rows=rows,
        texts=[answer.text for answer in answers],
        lengths=[answer.length for answer in answers],
        truncated=[answer.is_truncated for answer in answers],
        scores=scores,
        temperature=settings.temperature,
        split=task.config.split,
        n=settings.n,
        top_p=settings.top_p,
        reward_bounds=task.reward_bounds,
        part_bounds=task.part_bounds,
        certainty=() if measured is None else _certainty(measured, answers, hooks.warn),
        think_lengths=[answer.think_length for answer in answers],
        seconds=time.perf_counter() - started,
        peak_memory_mib=peak_memory_mib(None if measured is None else measured.device),
    )


def _questions(task: BoundTask, rows: Sequence[Row], settings: EvaluationSettings) -> list[Question]:
    """`n` questions for each row, those of a row side by side and with one prompt object."""
    prompts = [task.prompt(row) for row in rows]
    return [
        Question(
            prompts[index],
            SampleKey(settings.seed, EVALUATION_STEP, f"{task.name}/{row.id}", sample),
            task.task.stop,
            task.task.max_completion_length,
        )
        for index, row in enumerate(rows)
        for sample in range(settings.n)
    ]


def _answer(
    rows: Sequence[Row],
    questions: Sequence[Question],
    sampler: Sampler,
    sampling: Sampling,
    scoring: Player,
    hooks: EvaluationHooks,
) -> tuple[list[Sampled], dict[int, Future[Score]]]:
    """Answer questions of one turn; without an opponent, each answer is scored as soon as it is there."""
    answers: dict[int, Sampled] = {}
    futures: dict[int, Future[Score]] = {}
    for index, answer in sampler.sample(questions, sampling):
        if hooks.should_stop():
            raise StopRequested
        answers[index] = answer
        if scoring.opponent is None and not answer.error:
            futures[index] = scoring.scorer.submit(answer.text, rows[index])
        hooks.progress(len(answers), len(questions))
    return [answers[index] for index in range(len(questions))], futures


def _certainty(policy: Policy, answers: Sequence[Sampled], warn: Callable[[str], None]) -> tuple[Certainty | None, ...]:
    """Certainty of each answer: as its engine measured it, or else by one more forward pass."""
    from grpo_core.evaluation.surprisal import certainty  # it imports torch

    unknown = [index for index, answer in enumerate(answers) if answer.token_ids and answer.certainty is None]
    prompts = [answers[index].prompt_ids for index in unknown]
    certainties = certainty(policy, prompts, [answers[index].token_ids for index in unknown], warn=warn)
    by_index = dict(zip(unknown, certainties, strict=True))
    return tuple(by_index.get(index, answer.certainty) for index, answer in enumerate(answers))


def _play(
    scoring: Player, answers: Sequence[Sampled], rows: Sequence[Row], questions: Sequence[Question]
) -> dict[int, Future[Score]]:
    assert scoring.opponent is not None
    answered = [index for index, answer in enumerate(answers) if not answer.error]
    played = play_opponents(
        scoring.scorer,
        [answers[index].text for index in answered],
        [rows[index] for index in answered],
        scoring.opponent,
        keys=[questions[index].key for index in answered],
    )
    return {index: resolved(score) for index, score in zip(answered, played.scores, strict=True)}


def converse(
    task: BoundTask,
    rows: Sequence[Row],
    questions: Sequence[Question],
    sampler: Sampler,
    sampling: Sampling,
    scoring: Player,
    hooks: EvaluationHooks,
) -> tuple[list[Sampled], dict[int, Future[Score]]]:
    """Play every rollout to its end.

    Args:
        task: Task with several turns; a game is played against an opponent.
        rows: Row of each rollout.
        questions: First turn of each rollout.
        sampler: Generates the completions.
        sampling: How they are sampled.
        scoring: The task's scorer, and the model that plays against the policy, if one does.
        hooks: Called while the rollouts are played; progress after each round.

    Returns:
        (each rollout as one completion: what people read of it and the tokens of all its turns, its score by index).

    Raises:
        StopRequested: `hooks.should_stop` is true.
    """
    tables = [
        (scoring, Episode[Sampled](task, row, question.key, question.prompt))
        for row, question in zip(rows, questions, strict=True)
    ]

    def question(episode: Episode[Sampled]) -> Question:
        if scoring.tokenizer is None:
            limit, tools = task.task.max_completion_length, task.task.all_tools()
            return Question(episode.prompt, episode.turn_key, task.task.stop, limit, tools=tools)
        ids = scoring.encoder.prompt_ids(episode)
        request = scoring.encoder.request(episode, ids)
        limit = request.max_completion_length
        return Question(episode.prompt, request.key, request.stop, limit, ids, request.conversation)

    def answer(active: Sequence[int]) -> Iterator[tuple[int, Reply[Sampled] | Unanswered]]:
        hooks.progress(len(tables) - len(active), len(tables))
        turns = {index: question(tables[index][1]) for index in active}
        fitting = [index for index in active if not tables[index][1].turns or sampler.fits(turns[index], sampling)]
        for index in set(active) - set(fitting):
            yield index, Unanswered("", is_unreadable=True)
        for at, sampled in sampler.sample([turns[index] for index in fitting], sampling):
            if hooks.should_stop():
                raise StopRequested
            index = fitting[at]
            if sampled.error:
                yield index, Unanswered(sampled.error, is_unreadable=sampled.is_too_long)
            elif scoring.tokenizer is None:
                yield index, Reply(sampled.text, sampled, sampled.reading)
            else:
                yield index, scoring.encoder.reply(sampled.prompt_ids, sampled.completion, sampled)

    play(tables, answer)
    hooks.progress(len(tables), len(tables))
    asks = isinstance(sampler, EndpointSampler) and sampler.may_call
    said = [turn for _, episode in tables for turn in episode.state.moves if asks]
    if task.task.has_tools and said and not any(turn.calls for turn in said):
        hooks.warn(f"{task.label}: no completion called a tool; does the endpoint read calls as its model writes them?")
    futures = {index: next(iter(scoring.score(episode).values())) for index, (_, episode) in enumerate(tables)}
    return [_as_one(episode) for _, episode in tables], futures


def _as_one(episode: Episode[Sampled]) -> Sampled:
    turns = [turn.answer for turn in episode.turns]
    lengths = [turn.length for turn in turns if turn.length is not None]
    thoughts = [turn.think_length for turn in turns if turn.think_length is not None]
    return Sampled(
        text=episode.story,
        length=sum(lengths) if len(lengths) == len(turns) else None,
        is_truncated=any(turn.is_truncated for turn in turns),
        think_length=sum(thoughts) if thoughts else None,
    )


def evaluate_together(
    rows: Sequence[Row],
    evaluate: Callable[[Sequence[Row]], Evaluation],
    ranks: Ranks,
    in_step: Callable[..., AbstractContextManager[None]],
) -> Evaluation:
    """Evaluate rows on all ranks. The result is that of one process, since a completion depends on its key alone.

    Every rank calls it with the same rows, even if its share is empty: a model in shards runs on all or on none.

    Args:
        rows: All rows, in order.
        evaluate: Evaluates some of them in this process.
        ranks: The processes that evaluate.
        in_step: The context in which ranks run a model that they share; see `Policy.in_step`.

    Raises:
        StopRequested: `evaluate` raised it on any rank; it is raised on all.
        EngineError: likewise, and `UserError`.
    """
    if ranks.size == 1:
        with in_step():
            return evaluate(rows)
    share = ranks.share(len(rows))
    own: list[Evaluation] = []

    def answer() -> bytes:
        try:
            with in_step(StopRequested, EngineError, UserError):
                own.append(evaluate(rows[share.start : share.stop]))
        except StopRequested:
            return _STOPPED
        return _packed(own[0])

    parts = ranks.together(answer)
    if _STOPPED in parts:
        raise StopRequested
    return _joined(own[0], parts, rows)


def _packed(part: Evaluation) -> bytes:
    """Pack a part as JSON in ASCII, in which any text survives, without the rows."""
    return json.dumps(  # orjson refuses lone surrogates
        {
            **{name: getattr(part, name) for name in COLUMNS},
            "scores": [asdict(score) for score in part.scores],
            "seconds": part.seconds,
            "peak_memory_mib": part.peak_memory_mib,
        }
    ).encode("ascii")


def _joined(own: Evaluation, packed: Sequence[bytes], rows: Sequence[Row]) -> Evaluation:
    parts = [json.loads(part) for part in packed]
    joined: dict[str, Any] = {name: [each for part in parts for each in part[name]] for name in COLUMNS}
    joined["scores"] = [Score(**score) for score in joined["scores"]]
    joined["certainty"] = [_unpacked(pair) for pair in joined["certainty"]]
    joined |= {name: max(part[name] for part in parts) for name in ("seconds", "peak_memory_mib")}
    return replace(own, rows=rows, **joined)


def _unpacked(pair: Sequence[Sequence[float]] | None) -> Certainty | None:
    return None if pair is None else Certainty(*(TokenStatistics(*numbers) for numbers in pair))
