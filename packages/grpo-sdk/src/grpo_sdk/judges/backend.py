"""What a backend of judges is: it takes a call and gives a reply. A plugin registers one as a variant, kind `judge`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from grpo_sdk.judges.prompts import JudgeCall

Admission = Callable[[], AbstractAsyncContextManager[object]]
"""Opens a context within which one request is made; entering it waits for the limits."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A backend's reply to one call.

    Attributes:
        text: What a language model wrote; its verdict is read from the last line.
        value: The verdict itself, of a backend that has numbers and no text.
        input_tokens: Tokens of the prompt, if known.
        output_tokens: Tokens of the reply, if known.
        error: Why there is no reply; empty where there is one.
        is_refused: Whether the user must change something, e.g. a key or a model's name.
        is_too_long: Whether the texts do not fit the model: the completion's doing, and no failure of the model.
    """

    text: str = ""
    value: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    error: str = ""
    is_refused: bool = False
    is_too_long: bool = False


class Backend(Protocol):
    """Asks one model. Its methods run in one thread's event loop; `ask` is called concurrently."""

    async def ask(self, call: JudgeCall, admit: Admission) -> Reply:
        """Ask the model.

        Args:
            call: The call; `call.messages` are chat messages, `call.question` the texts by themselves.
            admit: Opens the context of each request.
        """

    def close(self) -> None:
        """Release what it holds."""
