"""Tools, tokenizers and conversations of the tests of formats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from grpo_core.policy.fresh import byte_tokenizer
from grpo_sdk.chat.encode import encode_text
from grpo_sdk.chat.formats import ToolFormat
from grpo_sdk.endpoints.completion import Completion, FinishReason
from grpo_sdk.task.row import Message
from grpo_sdk.task.tools.calls import ToolCall
from grpo_sdk.task.tools.tool import Tool, tools_of


def add(a: int, b: str | None = None) -> str:
    """Add numbers, größer als null."""
    return f"{a}{b}"


TOOLS: tuple[Tool, ...] = tools_of([add])
ASKED = (Message(role="user", content="1+1?"),)


def marked_bytes(template: str) -> Any:
    """A tokenizer of bytes with the marks of ChatML, and one of TRL's chat templates."""
    import trl

    made = byte_tokenizer()
    marks = ["<|im_start|>", "<|eot_id|>"]
    made.add_special_tokens({"bos_token": "<s>", "eos_token": "<|im_end|>", "extra_special_tokens": marks})
    made.add_tokens(["<think>", "</think>", "<tool_call>", "</tool_call>"])
    made.chat_template = (Path(trl.__file__).parent / "chat_templates" / f"{template}.jinja").read_text()
    return made


def sampled(tokenizer: Any, text: str, finish_reason: FinishReason = "stop") -> Completion:
    """A completion, whose text has no special tokens, as engines decode it."""
    ids = tuple(encode_text(tokenizer, text))
    return Completion(ids, (0.0,) * len(ids), tokenizer.decode(ids, skip_special_tokens=True), finish_reason, 0)


def called(calls: Sequence[ToolCall], content: str = "", thinking: str = "") -> Message:
    """The assistant's message of a turn with calls."""
    written = [
        {"type": "function", "function": {"name": call.name, "arguments": dict(call.arguments or {})}} for call in calls
    ]
    message = Message(role="assistant", content=content)
    if calls:
        message["tool_calls"] = written
    if thinking:
        message["reasoning_content"] = thinking
    return message


def played(
    form: ToolFormat, tokenizer: Any, texts: Sequence[str], user_every: int = 0
) -> Iterator[tuple[tuple[int, ...], Completion, tuple[int, ...], list[Message]]]:
    """Play completions, each answered by results of its calls, every few turns also by the user.

    Yields:
        (prompt, completion, prompt of the next turn, the conversation).
    """
    messages: list[Message] = [*ASKED]
    prompt = form.first(ASKED)
    for turn, text in enumerate(texts, 1):
        completion = sampled(tokenizer, text)
        reading = form.read(prompt, completion)
        results = [
            Message(role="tool", content=f"result {turn}.{at} ä", name=call.name)
            for at, call in enumerate(reading.calls)
        ]
        if not results or (user_every and turn % user_every == 0):
            results.append(Message(role="user", content=f"And {turn}?"))
        messages += [called(reading.calls, reading.text, reading.thinking), *results]
        following = form.following(prompt, completion, messages, len(results))
        yield prompt, completion, following, messages
        prompt = following
