"""A process that loads a task, its rows and prompts, scores completions, and says what it got: `python -m …`."""

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any

from grpo_core.plugins.tasks import received_task
from grpo_core.task.calling import prints_to_stderr

HEAVY = ("torch", "transformers", "trl", "peft", "vllm", "jax", "tensorflow")
"""Modules that a task must not import: each costs every worker that scores seconds and hundreds of MiB."""


def probe(sent: list[str], rows: int, texts: list[str], places: list[int], predictions: list[str] | None) -> Any:
    """What this process makes of a task.

    Args:
        sent: Task, as workers get it.
        rows: Rows that are compared, from the first.
        texts: Completions to score.
        places: Place of each completion's row.
        predictions: An opponent's answers.

    Returns:
        Hashes of the rows and prompts, the scores, and the heavy modules that are imported.
    """
    task = received_task(*sent)
    loaded = task.rows()
    scores = [task.score(text, loaded[place], predictions) for text, place in zip(texts, places, strict=True)]
    return {
        "rows": [_hash(row.model_dump_json()) for row in loaded[:rows]],
        "prompts": [_hash(json.dumps(task.prompt(row))) for row in loaded[:rows]],
        "scores": [[score.value, score.parts, score.valid, score.solved, score.fault] for score in scores],
        "heavy": [name for name in HEAVY if name in sys.modules],
    }


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


if __name__ == "__main__":
    with prints_to_stderr():
        answer = json.dumps(probe(**json.loads(sys.stdin.read())))
    sys.stdout.write(answer)
