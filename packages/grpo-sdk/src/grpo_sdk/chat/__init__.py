"""From messages to tokens and back: prompts, what follows a completion, and how a model calls tools."""

from grpo_sdk.chat.encode import encode_continuation, encode_prompt
from grpo_sdk.chat.formats import ToolFormat, choose_format

__all__ = ["ToolFormat", "choose_format", "encode_continuation", "encode_prompt"]
