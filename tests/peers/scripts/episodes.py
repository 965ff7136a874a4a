"""What the scripts of tools share: the episodes that are played, and a tokenizer of bytes with a chat template."""

import json
import sys
from typing import Any

TEMPLATE = """\
{%- if tools %}{{ '<|im_start|>system\\n' }}
{%- for tool in tools %}{{ tool | tojson }}{{ '\\n' }}{% endfor %}{{ '<|im_end|>\\n' }}{% endif %}
{%- for message in messages %}
{%- if message.role == 'tool' %}
{{- '<|im_start|>user\\n<tool_result>' + message.content + '</tool_result><|im_end|>\\n' }}
{%- else %}
{{- '<|im_start|>' + message.role + '\\n' + message.content }}
{%- for call in message.tool_calls or [] %}
{{- '<tool_call>{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments if call.function.arguments is string else call.function.arguments | tojson }}
{{- '}</tool_call>' }}
{%- endfor %}{{ '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
"""ChatML, which shows tools, calls and results."""

WITHOUT_TOOLS = TEMPLATE.replace("if tools", "if false").replace("'tool'", "'none'").replace("tool_calls or []", "none")
"""The same for models that know no tools."""

END = "<|im_end|>"


def played() -> dict[str, Any]:
    """The spec of a task, and episodes of it: `row`, and the `texts` and `asked` turns of the policy."""
    with open(sys.argv[1], encoding="utf-8") as file:
        return json.load(file)


def bytes_tokenizer(template: str = TEMPLATE) -> Any:
    """A tokenizer whose tokens are bytes and the marks of ChatML."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(
        pre_tokenizers.ByteLevel.alphabet(), key=lambda letter: letter == "~"
    )  # ART wants the last as text
    made = Tokenizer(models.BPE({letter: number for number, letter in enumerate(letters)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=made, eos_token=END, pad_token="<|endoftext|>")
    fast.add_special_tokens({"additional_special_tokens": ["<|im_start|>"]})
    fast.chat_template = template
    return fast


def runs(tokenizer: Any, token_ids: list[int], mask: list[float]) -> tuple[str, list[str]]:
    """What of a sequence is trained, and what stands between."""
    parts: list[tuple[bool, list[int]]] = []
    for token, is_trained in zip(token_ids, map(bool, mask), strict=True):
        if not parts or parts[-1][0] != is_trained:
            parts.append((is_trained, []))
        parts[-1][1].append(token)
    texts = [(is_trained, tokenizer.decode(ids)) for is_trained, ids in parts]
    return "".join(text for is_trained, text in texts if is_trained), [
        text for is_trained, text in texts if not is_trained
    ]


def episode(
    value: float | None, parts: dict[str, float] | None = None, told: list[str] = (), why: str = "", trained: str = ""
) -> dict[str, Any]:
    """What a trainer holds of an episode.

    Args:
        value: Its reward; None where there is none.
        parts: What is logged.
        told: What the policy was told between its turns.
        why: Why there is no reward.
        trained: The text of the tokens that are trained.
    """
    return {"value": value, "parts": parts, "told": list(told), "why": why, "trained": trained}
