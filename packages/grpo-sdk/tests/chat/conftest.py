from typing import Any

import pytest

from grpo_core.policy.fresh import EOS_TOKEN, byte_tokenizer

TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
    + EOS_TOKEN
    + "\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)
"""Like ChatML: each turn is closed by the end-of-sequence token and a line break."""


@pytest.fixture
def tokenizer() -> Any:
    made = byte_tokenizer()
    made.chat_template = TEMPLATE
    return made
