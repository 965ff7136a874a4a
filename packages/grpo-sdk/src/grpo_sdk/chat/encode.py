"""From a task's prompt to token ids: plain text as it is, messages through the model's chat template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from grpo_sdk.errors import EmptyPromptError, UserError
from grpo_sdk.task.row import Message, Prompt
from grpo_sdk.task.turns import without_prefill


def encode_prompt(tokenizer: Any, prompt: Prompt, tools: Sequence[Mapping[str, Any]] = ()) -> tuple[int, ...]:
    """Token ids of a prompt.

    A last message by the assistant is a prefill: the completion continues it.

    Args:
        tokenizer: Tokenizer of the model.
        prompt: Text, or messages.
        tools: OpenAI's form of the tools that the chat template tells the model of.

    Raises:
        EmptyPromptError: the prompt has no tokens.
        UserError: it has messages and the model has no chat template.
    """
    if isinstance(prompt, str):
        ids = encode_text(tokenizer, prompt, add_special_tokens=True)
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
            list(prompt),
            tools=list(tools) or None,
            tokenize=False,
            add_generation_prompt=not is_prefill,
            continue_final_message=is_prefill,
        )
        ids = encode_text(tokenizer, text)
    if not ids:
        raise EmptyPromptError(f"a prompt became no tokens: {prompt!r:.80}. A completion needs something to follow.")
    return tuple(ids)


MARK = "\N{SNOWMAN}\N{COMET}\N{SNOWMAN}"
"""Stands for a completion while the chat template is asked what follows one; no template says it."""


def encode_continuation(
    tokenizer: Any, prompt_ids: Sequence[int], completion_ids: Sequence[int], prompt: Prompt, text: str, whole: Prompt
) -> tuple[int, ...]:
    """Token ids of a conversation that goes on: the tokens so far as they were sampled, and those of what follows.

    Encoding the conversation again would change tokens that were sampled, and then train on others.

    Args:
        tokenizer: Tokenizer of the model.
        prompt_ids: Tokens of `prompt`, as they were given.
        completion_ids: Sampled behind them.
        prompt: What was answered.
        text: The completion's text.
        whole: The conversation with what follows; see `grpo_sdk.task.turns.continued`.
    """
    if isinstance(whole, str):
        assert isinstance(prompt, str), "a text goes on as text"
        following = whole[len(prompt) + len(text) :]
    else:
        assert not isinstance(prompt, str), "messages go on as messages"
        answered = len(without_prefill(prompt))
        following = text_behind(tokenizer, completion_ids, whole[:answered], whole[answered + 1 :])
    return (*prompt_ids, *completion_ids, *encode_text(tokenizer, following))


def text_behind(
    tokenizer: Any, completion_ids: Sequence[int], before: Sequence[Message], behind: Sequence[Message]
) -> str:
    """What the chat template writes behind a completion: the end of its turn, unless it sampled that, and messages.

    Args:
        tokenizer: Tokenizer of the model.
        completion_ids: The sampled tokens.
        before: Messages that the completion answers.
        behind: Messages that follow it.
    """
    marked = [*before, {"role": "assistant", "content": MARK}, *behind]
    rendered: str = tokenizer.apply_chat_template(marked, tokenize=False, add_generation_prompt=True)
    following = rendered.rpartition(MARK)[2]
    if completion_ids and completion_ids[-1] in tokenizer.all_special_ids:  # the completion closed its turn itself
        following = following.removeprefix(tokenizer.convert_ids_to_tokens(completion_ids[-1]))
    return following


def encode_text(tokenizer: Any, text: str, *, add_special_tokens: bool = False) -> list[int]:
    """Token ids of a text, in which special tokens may be written."""
    # Tokenizers take no lone surrogates, which a task may make of a completion, e.g. of "\\ud800" in its JSON.
    readable = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return [int(token) for token in tokenizer(readable, add_special_tokens=add_special_tokens)["input_ids"]]
