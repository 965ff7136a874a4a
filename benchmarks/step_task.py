"""The task of `step.py`: any text is valid and its reward is a hash of it, so that every group teaches something."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from grpo_sdk import Row, Task, TaskConfig, reward

PROMPT_CHARS = 48


class Line(Row):
    """A prompt of fixed length."""

    text: str


def load(config: TaskConfig) -> Iterable[Line]:
    """Sixty-four prompts."""
    for index in range(64):
        yield Line(id=str(index), text=f"{index:0{PROMPT_CHARS}d}")


def prompt(row: Line) -> str:
    """The row's text."""
    return row.text


def validate(text: str, row: Line) -> str:
    """Everything is valid."""
    return text


@reward()
def hashed(text: str) -> float:
    """A number in [0, 1) that the text decides."""
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=1).digest()[0] / 256


hashing = Task("hashing", load, prompt, validate, (hashed,))
