"""A model that answers prompts made from a task's valid answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from grpo_sdk.task.row import Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Opponent:
    """An engine that answers a prompt made from a valid answer, before the rewards run.

    Attributes:
        prompt: `(answer, row, config)`, by name -> the opponent's prompt.
        samples: Completions k per valid answer; rewards receive their texts as `predictions`.
        engine: `base` (the starting policy: the base with the adapter off, or a frozen copy), a model as for
            `--model`, or the URL of an OpenAI-compatible endpoint (`http://host:port/v1#model`).
        temperature: Temperature of the opponent's sampling.
        max_completion_length: Tokens per prediction.
        stop: Strings that end a prediction.
    """

    prompt: Callable[..., Prompt]
    samples: int = 4
    engine: str = "base"
    temperature: float = 0.7
    max_completion_length: int = 200
    stop: tuple[str, ...] = ()
