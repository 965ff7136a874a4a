"""An episode with tools, for a trainer whose messages have calls and results: verifiers, Inspect, OpenEnv.

The trainer samples a completion and says what it holds; its calls run in our workers, each once. Messages are those of
OpenAI's API, as the trainers' own readers take them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grpo_sdk.chat.json_calls import read_turn
from grpo_sdk.endpoints.openai import sent_messages
from grpo_sdk.episodes.player import Steps
from grpo_sdk.interop.adapter import Conversation, RowReference, TaskAdapter, as_messages
from grpo_sdk.task.row import Message, Prompt, Row
from grpo_sdk.task.score import Score
from grpo_sdk.task.tools.calls import ToolCall
from grpo_sdk.task.turns import TurnState, told

SentMessages = list[dict[str, Any]]


class ToolConversation(Conversation):
    """One episode of a task with tools.

    Attributes:
        said: The last completion; empty before it.
    """

    said = ""

    def open(self) -> Steps[SentMessages]:
        """Begin; returns the messages of the first turn. What could not begin is over, and its score says why."""
        yield from self._stepped.begin()
        episode = self._stepped.episode
        episode.prompt = _as_chat(episode.prompt)
        self.messages = shown(self._adapter, episode.prompt)
        return self.messages

    def say(self, text: str, calls: Sequence[ToolCall] | None = None) -> Steps[SentMessages]:
        """Play a completion; returns what follows it: the result of each call, also where the episode is over.

        Args:
            text: The completion.
            calls: Its calls; None where they are in the text, as JSON between `<tool_call>` and `</tool_call>`.
        """
        self.said = text = self._adapter.completion(text)
        reading = read_turn(text, calls)
        goes_on = yield from self._stepped.step(text, reading)
        episode = self._stepped.episode
        if goes_on:
            self.messages = shown(self._adapter, episode.prompt)
        if not reading.calls:
            return shown(self._adapter, episode.added) if goes_on else []
        return [dict(message) for message in told(episode.state, reading.calls)]

    @property
    def state(self) -> TurnState:
        """What followed the last completion."""
        return self._stepped.episode.state

    @property
    def scored_text(self) -> str:
        """The episode with its results, by which it can be scored once more; empty where it has none."""
        return self._stepped.episode.scored_texts().get("", "")


async def scored_again(adapter: TaskAdapter, text: str, row: RowReference) -> Score:
    """Score an episode once more by its `scored_text`, repeating its calls."""
    if not text:
        return Score(None, why="the log holds no episode that came to its end", fault="infrastructure")
    return (await adapter.scorer.ascore([text], [adapter.row(row)]))[0]


def shown(adapter: TaskAdapter, prompt: Prompt) -> SentMessages:
    """A prompt as messages of OpenAI's API; text is the user's message.

    Raises:
        UserError: it ends in a prefilled message by the assistant.
    """
    messages = _as_chat(prompt)
    as_messages(adapter.task, messages[-1:] if messages[-1]["role"] == "assistant" else (), adapter.trainer)
    return sent_messages(messages, "reasoning_content")


def first_messages(adapter: TaskAdapter, row: Row) -> SentMessages:
    """The messages that an episode of a row begins with, for a data set: without what `reset()` adds."""
    has_tools = adapter.task.task.has_tools
    return shown(adapter, adapter.task.prompt(row)) if has_tools else adapter.first_messages(row)


def _as_chat(prompt: Prompt) -> tuple[Message, ...]:
    return (Message(role="user", content=prompt),) if isinstance(prompt, str) else prompt
