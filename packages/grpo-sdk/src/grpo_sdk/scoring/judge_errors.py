"""Errors of a task's judges, measured on completions with known verdicts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import as_completed

from grpo_sdk.callbacks import Callback, ResolvedDefault
from grpo_sdk.errors import UserError
from grpo_sdk.judges.known import JudgeErrors, Known, known_of
from grpo_sdk.judges.service import Verdict
from grpo_sdk.killable.pool import wait_all
from grpo_sdk.scoring.scorer import Scorer
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.judging import JudgedReward
from grpo_sdk.task.row import Row
from grpo_sdk.task.rows import row_by_id


def judge_errors(scorer: Scorer, on_progress: Callable[[str, int, int], None] | None = None) -> list[JudgeErrors]:
    """The errors of each judge of a task that has known verdicts, by asking it about them.

    Args:
        scorer: Scorer of the task.
        on_progress: Told what is asked, the verdicts that there are, and their number in the end.

    Raises:
        UserError: a row that does not exist, known verdicts that are none, or a judge that cannot be asked.
        DataError: a wrong line of a file, or a row that does not fit the task.
    """
    return [_measured(scorer, judge, known, on_progress) for judge, known in _known(scorer.task)]


def error_choices(errors: Mapping[str, Sequence[JudgeErrors]]) -> list[ResolvedDefault]:
    """The errors as lines that are shown at the start, by the label of the task."""
    return [
        ResolvedDefault(f"judge {each.judge}", each.text(), f"{label}: {each.known} completions with known verdicts")
        for label, several in errors.items()
        for each in several
    ]


def known_errors(
    tasks: Mapping[str, BoundTask], timeout_s: float | None, memory_mib: int | None, callback: Callback
) -> dict[str, list[JudgeErrors]]:
    """Measure the errors of all judges that have known verdicts, and tell the callback.

    Args:
        tasks: Tasks by label.
        timeout_s: Limit of their scorers, as for `Scorer`.
        memory_mib: Memory limit of their scorers, as for `Scorer`.
        callback: Told of progress and of the errors.

    Returns:
        Errors by the label of the task. Errors are those of `judge_errors`.
    """
    errors = {}
    for label, task in tasks.items():
        if any(judge.known for judge in task.task.judges()):
            with Scorer(task, workers=1, timeout_s=timeout_s, memory_mib=memory_mib) as scorer:
                errors[label] = judge_errors(scorer, callback.on_progress)
    callback.on_choices(error_choices(errors))
    return errors


def _known(task: BoundTask) -> list[tuple[JudgedReward, list[Known]]]:
    pairs = [(judge, known_of(judge.known, judge.name)) for judge in task.task.judges()]
    for judge, known in pairs:
        if known and judge.kind == "pairwise":
            raise UserError(f"judge {judge.name!r} compares answers; known verdicts are of single ones.")
    return [(judge, known) for judge, known in pairs if known]


def _rows(task: BoundTask, known: Sequence[Known]) -> list[Row]:
    loaded: list[Row] = []
    rows = []
    for item in known:
        if isinstance(item.row, Row):
            rows.append(item.row)
        elif item.row.startswith("{"):
            rows.append(task.row_from_json(item.row))
        else:
            loaded = loaded or task.rows()
            rows.append(row_by_id(loaded, item.row, task.spec))
    return rows


def _measured(
    scorer: Scorer,
    judge: JudgedReward,
    known: Sequence[Known],
    on_progress: Callable[[str, int, int], None] | None,
) -> JudgeErrors:
    rows = _rows(scorer.task, known)
    graded = wait_all([scorer.questions(item.completion, row) for item, row in zip(known, rows, strict=True)])
    futures = {
        index: scorer.ask(judge, questions[judge.name])
        for index, questions in enumerate(graded)
        if judge.name in questions
    }
    if on_progress is not None:
        on_progress(f"judge {judge.name}", 0, len(futures))
        for done, _ in enumerate(as_completed(futures.values()), 1):
            on_progress(f"judge {judge.name}", done, len(futures))
    verdicts = dict(zip(futures, wait_all(list(futures.values())), strict=True))
    for verdict in verdicts.values():
        if verdict.is_refused:
            raise UserError(f"{verdict.why}.")
    none = Verdict(None)
    values = [verdicts.get(index, none).value for index in range(len(known))]
    why = next((verdict.why for verdict in verdicts.values() if verdict.value is None), "")
    return JudgeErrors.of(judge.name, judge.model.address, known, values, why)
