"""Evaluating rollouts of several turns: conversations with feedback, and games against an opponent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future

from grpo_core.engines.base import Sampling, StopRequested
from grpo_core.evaluation.hooks import EvaluationHooks
from grpo_core.evaluation.sampling import Question, Sampled, Sampler
from grpo_core.rollouts.episodes import Play, Reply, play
from grpo_core.rollouts.task_scoring import TaskScoring
from grpo_core.task.bound import BoundTask
from grpo_core.task.row import Row
from grpo_core.task.score import Score


def converse(
    task: BoundTask,
    rows: Sequence[Row],
    questions: Sequence[Question],
    sampler: Sampler,
    sampling: Sampling,
    scoring: TaskScoring,
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
    plays = [
        Play[Sampled](task, scoring.scorer, row, question.key, question.prompt, scoring.opponent)
        for row, question in zip(rows, questions, strict=True)
    ]

    def answer(active: Sequence[Play[Sampled]]) -> Iterator[tuple[int, Reply[Sampled]]]:
        hooks.progress(len(plays) - len(active), len(plays))
        turns = [
            Question(played.prompt, played.turn_key, task.task.stop, task.task.max_completion_length)
            for played in active
        ]
        fitting = [index for index, turn in enumerate(turns) if not active[index].turns or sampler.fits(turn, sampling)]
        for index in set(range(len(turns))) - set(fitting):
            yield index, Reply("", None, is_full=True)
        for at, sampled in sampler.sample([turns[index] for index in fitting], sampling):
            if hooks.should_stop():
                raise StopRequested
            index = fitting[at]
            is_full = sampled.is_too_long and bool(active[index].turns)
            yield index, Reply(sampled.text, None if sampled.error else sampled, error=sampled.error, is_full=is_full)

    play(plays, answer)
    hooks.progress(len(plays), len(plays))
    futures = {index: next(iter(played.scores().values())) for index, played in enumerate(plays)}
    return [_as_one(played) for played in plays], futures


def _as_one(played: Play[Sampled]) -> Sampled:
    turns = [turn.answer for turn in played.turns]
    lengths = [turn.length for turn in turns if turn.length is not None]
    thoughts = [turn.think_length for turn in turns if turn.think_length is not None]
    return Sampled(
        text=played.story,
        length=sum(lengths) if len(lengths) == len(turns) else None,
        is_truncated=any(turn.is_truncated for turn in turns),
        think_length=sum(thoughts) if thoughts else None,
    )
