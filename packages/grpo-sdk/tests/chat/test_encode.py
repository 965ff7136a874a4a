from typing import Any

import pytest

from grpo_core.policy.fresh import EOS_TOKEN
from grpo_sdk.chat.encode import encode_continuation, encode_prompt
from grpo_sdk.task.row import Message, Prompt
from grpo_sdk.task.turns import continued


def ids(tokenizer: Any, text: str) -> tuple[int, ...]:
    return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])


def goes_on(tokenizer: Any, prompt: Prompt, sampled: tuple[int, ...], text: str, following: Prompt) -> tuple[int, ...]:
    whole = continued(prompt, text, following)
    return encode_continuation(tokenizer, encode_prompt(tokenizer, prompt), sampled, prompt, text, whole)


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_prompt_goes_on_behind_the_sampled_tokens(tokenizer: Any, is_closed: bool) -> None:
    end = (tokenizer.eos_token_id,) * is_closed  # which the completion sampled, or it was cut
    made = goes_on(tokenizer, "2+2=", (*ids(tokenizer, "5"), *end), "5", " no: ")
    assert made == (*ids(tokenizer, "2+2=5"), *end, *ids(tokenizer, " no: "))
    asked = (Message(role="user", content="2+2?"),)
    made = goes_on(tokenizer, asked, (*ids(tokenizer, "5"), *end), "5", "No.")
    chat = f"<user>2+2?{EOS_TOKEN}\n<assistant>5{EOS_TOKEN}\n<user>No.{EOS_TOKEN}\n<assistant>"
    assert made == ids(tokenizer, chat), "as its template would have it"


def test_sampled_tokens_are_never_encoded_again(tokenizer: Any) -> None:
    # A tokenizer of bytes writes "é" as two tokens; the sampler stopped between them.
    asked = (Message(role="user", content="?"),)
    sampled = ids(tokenizer, "é")[:1]
    made = goes_on(tokenizer, asked, sampled, "\N{REPLACEMENT CHARACTER}", "No.")
    start = len(encode_prompt(tokenizer, asked))
    assert made[start : start + 1] == sampled
