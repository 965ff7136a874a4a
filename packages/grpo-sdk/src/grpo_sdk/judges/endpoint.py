"""Judges at OpenAI-compatible endpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grpo_sdk.endpoints.base import Sampling
from grpo_sdk.errors import UserError
from grpo_sdk.judges.backend import Admission, Reply
from grpo_sdk.judges.models import Endpoint
from grpo_sdk.judges.prompts import JudgeCall

if TYPE_CHECKING:
    import httpx2


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


def open_endpoint(model: Endpoint) -> EndpointBackend:
    """The backend of an `Endpoint`."""
    return EndpointBackend(model)
