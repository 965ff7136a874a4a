"""From a task's prompt to token ids: plain text as it is, messages through the model's chat template."""

from __future__ import annotations

from typing import Any

from grpo_core.errors import UserError
from grpo_core.task import Prompt


def encode_prompt(tokenizer: Any, prompt: Prompt) -> tuple[int, ...]:
    """Token ids of a prompt.

    A last message by the assistant is a prefill: the completion continues it.

    Raises:
        UserError: the prompt is empty, or has messages and the model has no chat template.
    """
    if isinstance(prompt, str):
        ids = tokenizer(prompt, add_special_tokens=True)["input_ids"]
        # A tokenizer made for pairs may end the text; a completion must follow it.
        if ids and len(ids) > 1 and ids[-1] == tokenizer.eos_token_id:
            ids = ids[:-1]
    else:
        if not getattr(tokenizer, "chat_template", None):
            raise UserError(
                "this task's prompts are chat messages and the model's tokenizer has no chat template; "
                "use an instruct model, or a task whose prompts are text."
            )
        is_prefill = prompt[-1]["role"] == "assistant"
        text = tokenizer.apply_chat_template(
            list(prompt), tokenize=False, add_generation_prompt=not is_prefill, continue_final_message=is_prefill
        )
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    if not ids:
        raise UserError(f"a prompt became no tokens: {prompt!r:.80}. A completion needs something to follow.")
    return tuple(int(token) for token in ids)
