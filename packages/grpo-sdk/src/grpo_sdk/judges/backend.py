"""What a backend of judges is, and the one of OpenAI-compatible endpoints.

A backend takes a call and gives a reply. A plugin registers one as a variant, kind `judge`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from grpo_sdk.endpoints.base import Sampling
from grpo_sdk.errors import UserError
from grpo_sdk.judges.models import Endpoint
from grpo_sdk.judges.prompts import JudgeCall

if TYPE_CHECKING:
    import httpx2

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


class EndpointBackend:
    """Asks a model at an endpoint.

    Args:
        model: The endpoint.
    """

    def __init__(self, model: Endpoint) -> None:
        self._client = model.client()
        self._sampling = Sampling(temperature=model.temperature, max_completion_length=model.max_tokens)
        self._session: httpx2.AsyncClient | None = None
        self._key = ""

    async def ask(self, call: JudgeCall, admit: Admission) -> Reply:
        """Make a request with its repetitions; see `Backend.ask`."""
        try:
            if self._session is None:
                self._key = self._client.key()
                self._session = self._client.session(self._key)
            path, body = self._client.body(call.messages, self._sampling)
            answer = await self._client.ask(self._session, path, body, self._key, admit)
        except UserError as error:
            return Reply(error=str(error).rstrip("."), is_refused=True)
        why = answer.error  # the verdict is read from the text, never from what the judge thought before it
        if not why and not answer.text and answer.finish_reason == "length":
            hint = "a model that reasons first may need a larger max_tokens"
            why = f"{self._client.base_url}: a reply without text; {hint}"
        return Reply(answer.text, None, answer.prompt_tokens, answer.tokens, why, is_too_long=answer.is_too_long)

    def close(self) -> None:
        """Forget the connections and the key; the operating system closes them with the process."""
        self._session, self._key = None, ""
