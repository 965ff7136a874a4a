"""TRL's completions as texts, and as the turns of an episode with tools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from grpo_sdk.chat.json_calls import judged
from grpo_sdk.errors import UserError
from grpo_sdk.interop.adapter import answer_text
from grpo_sdk.task.tools.calls import ToolCall

Completion = str | Sequence[Mapping[str, Any]]

_SPLIT_OFF = ("reasoning_content", "thinking", "tool_calls")


def completion_text(completion: Completion) -> str:
    """Return the text of a completion of TRL: a string, or one message by the assistant.

    Args:
        completion: As TRL gives it to a reward function.

    Raises:
        UserError: it is neither, has several messages, or parts of the text were split off into other fields.
    """
    if isinstance(completion, str):
        return completion
    if not isinstance(completion, list | tuple) or not all(isinstance(message, Mapping) for message in completion):
        raise UserError(f"a completion is a text, or a list of one message; got {completion!r:.80}.")
    if len(completion) != 1 or completion[0].get("role") != "assistant":
        roles = ", ".join(str(message.get("role")) for message in completion) or "no message"
        raise UserError(f"a completion of a single-turn task is one message by the assistant; this one has: {roles}.")
    (message,) = completion
    split_off = [name for name in _SPLIT_OFF if message.get(name)]
    if split_off:
        raise UserError(
            f"the tokenizer's response template moved part of a completion to {', '.join(split_off)}, so its text "
            "cannot be scored; set tokenizer.response_template = tokenizer.response_schema = None before training."
        )
    return _content(message)


def last_text(completion: Completion) -> str:
    """Return what the model wrote after its last tool call; empty where it ended with one."""
    if isinstance(completion, str) or not completion:
        return completion if isinstance(completion, str) else ""
    last = completion[-1]
    return "" if last.get("role") != "assistant" or last.get("tool_calls") else completion_text([last])


def tool_turns(completion: Completion) -> Iterator[tuple[str, list[ToolCall], list[str]]]:
    """The turns of a rollout with tools.

    Yields:
        (text with what was thought, calls, what TRL told the policy to each call; nothing where it told it nothing).
    """
    messages = [{"role": "assistant", "content": completion}] if isinstance(completion, str) else completion
    for place, message in enumerate(messages):
        if message["role"] == "assistant":
            calls = [_tool_call(each.get("function", each)) for each in message.get("tool_calls") or ()]
            told = [str(each["content"]) for each in messages[place + 1 : place + 1 + len(calls)]]
            thought = message.get("reasoning_content") or message.get("thinking")
            yield answer_text(_content(message), thought), calls, told


def _tool_call(function: Mapping[str, Any]) -> ToolCall:
    arguments = function.get("arguments")
    return judged(str(function.get("name")), dict(arguments) if isinstance(arguments, Mapping) else arguments)


def _content(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(block.get("text", "") for block in content if block.get("type") == "text")
