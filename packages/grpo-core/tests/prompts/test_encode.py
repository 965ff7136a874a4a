from __future__ import annotations

from typing import Any

import pytest

from grpo_core.engines.encode import encode_continuation, encode_prompt
from grpo_core.policy.fresh import EOS_TOKEN, byte_tokenizer
from grpo_core.task.row import Message, Prompt
from grpo_core.task.turns import continued

TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
    + EOS_TOKEN
    + "\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)
"""Like ChatML: each turn is closed by the end-of-sequence token and a line break."""


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    made = byte_tokenizer()
    made.chat_template = TEMPLATE
    return made


def ids(tokenizer: Any, text: str) -> tuple[int, ...]:
    return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])


def goes_on(tokenizer: Any, prompt: Prompt, sampled: tuple[int, ...], text: str, following: Prompt) -> tuple[int, ...]:
    whole = continued(prompt, text, following)
    return encode_continuation(tokenizer, encode_prompt(tokenizer, prompt), sampled, prompt, text, whole)


def test_text_goes_on_behind_the_sampled_tokens(tokenizer: Any) -> None:
    made = goes_on(tokenizer, "2+2=", ids(tokenizer, "5"), "5", " no: ")
    assert made == ids(tokenizer, "2+2=5 no: ")


def test_a_sampled_end_of_sequence_stays(tokenizer: Any) -> None:
    sampled = (*ids(tokenizer, "5"), tokenizer.eos_token_id)
    made = goes_on(tokenizer, "2+2=", sampled, "5", " no: ")
    assert made == (*ids(tokenizer, "2+2="), *sampled, *ids(tokenizer, " no: "))


def test_a_chat_goes_on_as_its_template_would_have_it(tokenizer: Any) -> None:
    asked = (Message(role="user", content="2+2?"),)
    sampled = (*ids(tokenizer, "5"), tokenizer.eos_token_id)  # the completion closed its turn itself
    made = goes_on(tokenizer, asked, sampled, "5", "No.")
    assert made == ids(tokenizer, f"<user>2+2?{EOS_TOKEN}\n<assistant>5{EOS_TOKEN}\n<user>No.{EOS_TOKEN}\n<assistant>")


def test_the_template_closes_a_turn_that_was_cut(tokenizer: Any) -> None:
    asked = (Message(role="user", content="2+2?"),)
    made = goes_on(tokenizer, asked, ids(tokenizer, "fi"), "fi", "No.")
    assert made == ids(tokenizer, f"<user>2+2?{EOS_TOKEN}\n<assistant>fi{EOS_TOKEN}\n<user>No.{EOS_TOKEN}\n<assistant>")


def test_sampled_tokens_are_never_encoded_again(tokenizer: Any) -> None:
    # A tokenizer of bytes writes "é" as two tokens; the sampler stopped between them.
    asked = (Message(role="user", content="?"),)
    sampled = ids(tokenizer, "é")[:1]
    made = goes_on(tokenizer, asked, sampled, "\N{REPLACEMENT CHARACTER}", "No.")
    start = len(encode_prompt(tokenizer, asked))
    assert made[start : start + 1] == sampled
