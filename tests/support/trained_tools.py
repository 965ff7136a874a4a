"""Two steps of training on a task with tools, by a tiny model whose completions are read as given calls."""

from dataclasses import replace
from typing import Any

from grpo_core import train
from grpo_sdk.callbacks import Callback, StepRecord
from grpo_sdk.episodes.encoder import EpisodeEncoder
from grpo_sdk.task.tools.calls import Reading, ToolCall


def check_that_a_run_trains(spec: str, calls: list[Any], folder: str) -> None:
    """Two completions of three make a call of the given ones, in turn; none may abstain, and rewards must differ."""
    steps: list[dict[str, float]] = []
    read, made = EpisodeEncoder.reply, iter(range(10**9))

    class Watch(Callback):
        def on_step(self, record: StepRecord) -> None:
            steps.append(dict(record.metrics))

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
    assert len(steps) == 2 and not any(step["abstained"] for step in steps)
    assert any(value for step in steps for name, value in step.items() if name.endswith("/part/n_calls"))
    assert any(step["reward_std"] for step in steps)
