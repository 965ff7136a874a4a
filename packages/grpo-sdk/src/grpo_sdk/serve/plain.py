"""`/score`: our own protocol, which says everything about a score."""

from __future__ import annotations

from typing import Any

from grpo_sdk.serve.body import Message, check_count, parse
from grpo_sdk.serve.errors import abstention_of, bad_request
from grpo_sdk.serve.scoring import Sample, Service
from grpo_sdk.serve.tasks import ServedTask
from grpo_sdk.task.score import Score

RowReference = str | dict[str, Any]


class ScoreRequest(Message):
    """Request of `/score`.

    Attributes:
        task: Name of the task, where the path has none.
        row: Row of all completions: its id, or the whole row as an object or as JSON text.
        rows: Row of each completion, in place of `row`.
        split: Split in which ids are looked up; by default all of them.
        completion: The completion.
        completions: Several completions, in place of `completion`.
        predictions: The opponent's answers to the completion, for a task that has an opponent; a list of them for each
            of several completions.
    """

    task: str | None = None
    row: RowReference | None = None
    rows: list[RowReference] | None = None
    split: str | None = None
    completion: str | None = None
    completions: list[str] | None = None
    predictions: list[str] | list[list[str]] | None = None


async def score(service: Service, task: ServedTask, body: dict[str, Any]) -> dict[str, Any]:
    """Score one completion or several."""
    request = parse(ScoreRequest, body)
    if (request.completion is None) == (request.completions is None):
        raise bad_request("give either 'completion' or 'completions'.")
    if (request.row is None) == (request.rows is None):
        raise bad_request("give either 'row' or 'rows'.")
    texts = [request.completion] if request.completion is not None else list(request.completions or ())
    check_count(len(texts))
    references = request.rows if request.rows is not None else [request.row] * len(texts)
    if len(references) != len(texts):
        raise bad_request(f"{len(texts)} completions and {len(references)} rows: give one row for each completion.")
    predictions = _predictions(request, len(texts))
    rows = {key: await service.row(task, reference, request.split) for key, reference in _distinct(references).items()}
    samples = [
        Sample(text, rows[_key(reference)], predicted)
        for text, reference, predicted in zip(texts, references, predictions, strict=True)
    ]
    scores = [as_json(each) for each in await service.score(task, samples)]
    return scores[0] if request.completion is not None else {"scores": scores}


def as_json(score: Score) -> dict[str, Any]:
    """A score as plain values; `score` is null where `abstained` says why there is none."""
    return {
        "score": score.value,
        "abstained": abstention_of(score),
        "parts": score.parts,
        "valid": score.valid,
        "solved": score.solved,
        "why": score.why,
    }


def _predictions(request: ScoreRequest, count: int) -> list[tuple[str, ...] | None]:
    given = request.predictions
    if given is None:
        return [None] * count
    lists: list[Any] = [given] if request.completion is not None else list(given)
    are_texts = all(isinstance(each, list) and all(isinstance(text, str) for text in each) for each in lists)
    if len(lists) != count or not are_texts:
        raise bad_request("'predictions' is a list of texts for each completion.")
    return [tuple(each) for each in lists]


def _distinct(references: list[Any]) -> dict[Any, Any]:
    return {_key(reference): reference for reference in references}


def _key(reference: Any) -> Any:
    """What names a row within a request; an object by its identity, since one without hash cannot be a key."""
    return reference if isinstance(reference, str) else id(reference)
