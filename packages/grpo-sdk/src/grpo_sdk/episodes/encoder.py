"""The prompts of episodes as tokens, and completions as what they say."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

from grpo_sdk.callbacks import ResolvedDefault
from grpo_sdk.chat import ToolFormat, choose_format, encode_continuation, encode_prompt
from grpo_sdk.endpoints.base import Request
from grpo_sdk.endpoints.completion import Completion
from grpo_sdk.episodes.episode import Answer, Episode, Reply
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.marks import cut_at_stop
from grpo_sdk.task.row import Message, Prompt
from grpo_sdk.task.turns import added

logger = logging.getLogger(__name__)


class Tokens(Protocol):
    """A completion of an episode, with the tokens that it follows."""

    @property
    def prompt_ids(self) -> tuple[int, ...]: ...  # noqa: D102 - see the class
    @property
    def completion(self) -> Completion: ...  # noqa: D102 - as above


HasTokens = TypeVar("HasTokens", bound=Tokens)


@dataclass(frozen=True, slots=True)
class SampledTurn:
    """A completion that another trainer has sampled; see `Tokens`."""

    prompt_ids: tuple[int, ...]
    completion: Completion


class EpisodeEncoder:
    """Encodes the prompts of a task for one model. What was sampled is never encoded again.

    Args:
        task: The task.
        tokenizer: Tokenizer of the model.
    """

    def __init__(self, task: BoundTask, tokenizer: Any) -> None:
        self._task, self._tokenizer = task, tokenizer
        self._format: ToolFormat | None = None

    def format_of(self, prompt: Prompt) -> ToolFormat | None:
        """How the model calls the task's tools; None in a task without.

        Args:
            prompt: A prompt of the task, which are all text or all messages.
        """
        if self._format is None and self._task.task.has_tools:
            self._format = choose_format(self._tokenizer, self._task.task.all_tools(), prompt)
            logger.info("tool calls %s: %s: %s", self._task.label, self._format.name, self._format.why)
        return self._format

    def choice(self, prompt: Prompt) -> list[ResolvedDefault]:
        """How the model calls tools, with the reason, for the header of a run."""
        chosen = self.format_of(prompt)
        if chosen is None:
            return []
        return [ResolvedDefault("tool calls", f"{self._task.label}: {chosen.name}", chosen.why)]

    def first(self, prompt: Prompt) -> tuple[int, ...]:
        """Tokens of a first prompt."""
        tool_format = self.format_of(prompt)
        return encode_prompt(self._tokenizer, prompt) if tool_format is None else tool_format.first(prompt)

    def prompt_ids(self, episode: Episode[HasTokens]) -> tuple[int, ...]:
        """Tokens of an episode's next prompt: as they were sampled, and those of what follows."""
        if not episode.goes_on:
            return self.first(episode.prompt)
        last = episode.turns[-1]
        before, completion = last.answer.prompt_ids, last.answer.completion
        tool_format = self.format_of(episode.prompt)
        if tool_format is None or isinstance(episode.prompt, str):
            sampled = completion.token_ids
            return encode_continuation(self._tokenizer, before, sampled, last.prompt, last.text, episode.prompt)
        new = cast("Sequence[Message]", added(last.prompt, last.text, episode.prompt))
        return tool_format.following(before, completion, episode.prompt, len(new))

    def request(self, episode: Episode[Any], prompt_ids: tuple[int, ...]) -> Request:
        """The request for an episode's next completion."""
        task = self._task.task
        stop = task.stop if self._format is None else (*task.stop, *self._format.stop)
        goes_on = episode.task.has_turns and not episode.partner.makes_prompts
        name = "/".join(map(str, episode.key)) if goes_on else None
        limit = task.max_completion_length
        return Request(prompt_ids, episode.turn_key, stop=stop, max_completion_length=limit, conversation=name)

    def reply(self, prompt_ids: Sequence[int], completion: Completion, answer: Answer) -> Reply[Answer]:
        """A completion with what it says."""
        reading = None if self._format is None else self._format.read(prompt_ids, completion)
        return Reply(completion.text, answer, reading)

    def sampled(
        self, prompt_ids: Sequence[int], token_ids: Sequence[int], *, is_cut: bool | None = None
    ) -> Reply[SampledTurn]:
        """A completion that another trainer has sampled.

        Args:
            prompt_ids: Its prompt.
            token_ids: Its tokens.
            is_cut: Whether the length limit ended it; None where the trainer doesn't say: then neither a special token
                nor a stop string did.
        """
        ids, prompt = tuple(token_ids), tuple(prompt_ids)
        text, is_stopped = cut_at_stop(self._tokenizer.decode(ids, skip_special_tokens=True), self._task.task.stop)
        if is_cut is None:
            is_cut = not (is_stopped or (ids and not self._tokenizer.decode(ids[-1:], skip_special_tokens=True)))
        completion = Completion(ids, (0.0,) * len(ids), text, "length" if is_cut else "stop", 0)
        return self.reply(prompt, completion, SampledTurn(prompt, completion))
