"""New scores of stored completions: what was scored then, scored again by the task as it is today."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future

import orjson

from grpo_sdk.errors import DataError
from grpo_sdk.records.rollouts import RolloutRecord
from grpo_sdk.scoring.groups import group_scores
from grpo_sdk.scoring.scorer import Scorer
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.row import Row
from grpo_sdk.task.score import Score

NEVER_SCORED = "the run scored nothing of them: a turn or the opponent had failed"
NO_SCORED_TEXT = "the log is of an earlier version, which holds turns and games as people read them only"
NO_PREDICTIONS = "the log is of an earlier version, which does not hold the opponent's answers"
NEVER_ASKED = "they are valid now, and the run did not ask the opponent about them, since they were not then"


Scored = tuple[RolloutRecord, Score]
"""A stored completion with its new score."""


def score_again(
    records: Iterable[RolloutRecord], scorers: Mapping[str, Scorer]
) -> tuple[list[Scored], list[tuple[RolloutRecord, str]]]:
    """Score the completions of one step.

    What the log holds of the rollout is scored, not played again: the last completion of a conversation, whatever the
    feedback would be today; the moves of a game, by today's rules; the opponent's answers, whatever it would be asked.

    Args:
        records: Completions of the step.
        scorers: Spec of the run -> scorer of today's task.

    Returns:
        (completions with their new scores, completions that cannot be scored again, each with the reason).

    Raises:
        DataError: a stored row does not fit its task.
    """
    waiting: list[tuple[RolloutRecord, str, Future[Score]]] = []
    skipped: list[tuple[RolloutRecord, str]] = []
    rows: dict[tuple[str, int], Row] = {}  # the members of a group share their row
    for record in records:
        scorer, key = scorers[record.task], (record.task, record.group)
        text = record.scored_text or (record.text if record.is_single_turn else None)
        if (why := _why_not(record, scorer.task)) or text is None:
            skipped.append((record, why))
            continue
        if key not in rows or rows[key].id != record.row_id:
            rows[key] = _row(scorer.task, record)
        predictions = None if scorer.task.opponent is None else record.predictions or ()
        waiting.append((record, text, scorer.submit(text, rows[key], predictions)))
    scored: list[tuple[RolloutRecord, str, Score]] = []
    for record, text, future in waiting:
        score = future.result()
        if scorers[record.task].task.opponent is not None and record.predictions is None and score.valid:
            skipped.append((record, NEVER_ASKED))
        else:
            scored.append((record, text, score))
    return _with_group_rewards(scored, rows, scorers), skipped


def _why_not(record: RolloutRecord, task: BoundTask) -> str:
    """Why a completion cannot be scored again; empty where it can."""
    has_failed = record.score.fault != ""
    if not record.is_single_turn and record.scored_text is None:
        return NEVER_SCORED if has_failed else NO_SCORED_TEXT
    if task.opponent is not None and record.predictions is None and (has_failed or record.score.valid):
        return NEVER_SCORED if has_failed else NO_PREDICTIONS
    return ""


def _with_group_rewards(
    scored: Sequence[tuple[RolloutRecord, str, Score]],
    rows: Mapping[tuple[str, int], Row],
    scorers: Mapping[str, Scorer],
) -> list[Scored]:
    """Add the group rewards of the tasks that have any; the completions of a group are those of its prompt."""
    completed = [(record, score) for record, _, score in scored]
    for spec, scorer in scorers.items():
        if not scorer.task.task.group_specs():
            continue
        members: dict[int, list[int]] = {}
        for index, (record, _, _) in enumerate(scored):
            if record.task == spec:
                members.setdefault(record.group, []).append(index)
        groups = [
            ([scored[index][1] for index in own], rows[spec, group], [scored[index][2] for index in own])
            for group, own in members.items()
        ]
        for own, scores in zip(members.values(), group_scores(scorer, groups), strict=True):
            for index, score in zip(own, scores, strict=True):
                completed[index] = (scored[index][0], score)
    return completed


def _row(task: BoundTask, record: RolloutRecord) -> Row:
    try:
        return task.row_from_json(orjson.dumps(record.row))
    except DataError as error:
        raise DataError(f"step {record.step}: a row that the run stored is none of this task: {error}") from None
