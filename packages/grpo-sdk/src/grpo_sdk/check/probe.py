"""A process that loads a task, its rows and prompts, scores completions, and says what it got."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from typing import Any

from grpo_sdk.plugins.tasks import received_task
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.calling import prints_to_stderr
from grpo_sdk.task.judging import Pending
from grpo_sdk.task.row import Row
from grpo_sdk.task.score import Score

HEAVY = ("torch", "transformers", "trl", "peft", "vllm", "jax", "tensorflow")
"""Modules that a task must not import: each costs every worker that scores seconds and hundreds of MiB."""


REPEATS = 50
REPEAT_S = 2.0
"""Times, and seconds, that the same completions are scored again, to see a score that depends on earlier ones."""


def probe(sent: list[str], rows: int, texts: list[str], places: list[int], predictions: list[str] | None) -> Any:
    """What this process makes of a task.

    Args:
        sent: Task, as workers get it.
        rows: Rows that are compared, from the first.
        texts: Completions to score.
        places: Place of each completion's row.
        predictions: An opponent's answers.

    Returns:
        Hashes of the rows and prompts, the scores, the scores after many others, and the heavy modules that are
        imported.
    """
    task = received_task(*sent)
    loaded = task.rows()
    begin = time.monotonic()
    scores = _scores(task, texts, [loaded[place] for place in places], predictions)
    again, repeats = scores, 0
    while again == scores and repeats < REPEATS and time.monotonic() - begin < REPEAT_S:
        again = _scores(task, texts, [loaded[place] for place in places], predictions)
        repeats += 1
    return {
        "rows": [_hash(row.model_dump_json()) for row in loaded[:rows]],
        "prompts": [_hash(json.dumps(task.prompt(row))) for row in loaded[:rows]],
        "scores": scores,
        "again": again,
        "heavy": [name for name in HEAVY if name in sys.modules],
    }


def _scores(task: BoundTask, texts: list[str], rows: list[Row], predictions: list[str] | None) -> list[list[Any]]:
    return [compared(_score(task, text, row, predictions)) for text, row in zip(texts, rows, strict=True)]


def _score(task: BoundTask, text: str, row: Row, predictions: list[str] | None) -> Score:
    """The score in this process; judges are taken to be satisfied, as in all checks."""
    if not task.task.judges():
        return task.score(text, row, predictions)
    known: dict[str, float] = {}
    while isinstance(graded := task.grader.grade(text, row, known=known), Pending):
        known = {**graded.parts, **dict.fromkeys(graded.questions, 1.0)}
    return graded


def compared(score: Score) -> list[Any]:
    """What two scores of the same completion must have in common, as JSON."""
    return [score.value, score.parts, score.valid, score.solved, score.fault]


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def main() -> None:
    """Answer the request on stdin, as JSON on stdout."""
    with prints_to_stderr():
        answer = json.dumps(probe(**json.loads(sys.stdin.read())))
    sys.stdout.write(answer)
