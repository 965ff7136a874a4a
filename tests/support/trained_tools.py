"""Two steps of training on a task with tools, by a tiny model whose completions are read as given calls.

python trained_tools.py SPEC CALLS    prints the metrics of each step; CALLS is [[tool, arguments], …], made in turn
"""

import json
import sys
import tempfile
from dataclasses import replace
from typing import Any

from grpo_core import train
from grpo_sdk.callbacks import Callback, StepRecord
from grpo_sdk.episodes.encoder import EpisodeEncoder
from grpo_sdk.task.tools.calls import Reading, ToolCall


def trained(spec: str, calls: list[Any], folder: str) -> list[dict[str, float]]:
    """Metrics of each step; two completions of three make a call."""
    metrics: list[dict[str, float]] = []
    read, made = EpisodeEncoder.reply, iter(range(10**9))

    class Watch(Callback):
        def on_step(self, record: StepRecord) -> None:
            metrics.append(dict(record.metrics))

    def reply(self: EpisodeEncoder, ids: Any, completion: Any, answer: Any) -> Any:
        said = read(self, ids, completion, answer)
        number = next(made)
        asked = (ToolCall(*calls[number % len(calls)]),) if number % 3 else ()
        return replace(said, reading=Reading(said.text, calls=asked))

    EpisodeEncoder.reply = reply  # type: ignore[method-assign, assignment]
    try:
        train(
            spec, model="tiny", max_steps=2, prompts_per_step=2, num_generations=4, max_completion_length=8,
            output_dir=folder, progress=False, eval={"at_start": False, "at_end": False}, callbacks=[Watch()],
        )  # fmt: skip
    finally:
        EpisodeEncoder.reply = read  # type: ignore[method-assign]
    return metrics


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        print(json.dumps(trained(sys.argv[1], json.loads(sys.argv[2]), scratch)))
