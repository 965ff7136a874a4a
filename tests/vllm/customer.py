"""Writes a small model that knows the episodes of `kiosk` by heart, with a chat template that renders tools: FOLDER.

It knows both forms in which a server may be told of tools: the template's, and a message of the system.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from kiosk import KIOSK, load
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from grpo_sdk import Message
from grpo_sdk.chat.text_form import in_text_form

TEMPLATE = """\
{%- if tools %}<|im_start|>system
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}<|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}
{%- for call in message.tool_calls or () %}
<tool_call>{{ {'name': call.function.name, 'arguments': call.function.arguments} | tojson }}</tool_call>
{%- endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
START, END = "<|im_start|>", "<|im_end|>"
STEPS, BATCH = 150, 12


def episode(row: Any) -> list[Message]:
    """An episode as it should go."""
    prices = {"tea": 4, "rice": 5, "salt": 6}

    def said(*calls: tuple[str, dict[str, Any]]) -> Message:
        made = [{"type": "function", "function": {"name": name, "arguments": given}} for name, given in calls]
        return Message(role="assistant", content="", tool_calls=made)

    return [
        said(("price", {"item": row.item}), ("price", {"item": row.other})),
        Message(role="tool", name="price", content=str(prices[row.item])),
        Message(role="tool", name="price", content=str(prices[row.other])),
        said(("order", {"item": row.item, "count": row.count})),
        Message(role="tool", name="order", content=f"bought {row.count} {row.item}"),
        Message(role="assistant", content=f"{row.count} {row.item}, done"),
    ]


def examples(tokenizer: Any) -> Iterator[tuple[str, str]]:
    """(prompt, completion) of every turn in both forms."""
    tools = KIOSK.all_tools()
    for row in load(KIOSK.config()):
        messages = list(KIOSK.prompt(row))
        for message in episode(row):
            calls = [
                f"\n<tool_call>{json.dumps(call['function'])}</tool_call>" for call in message.get("tool_calls", ())
            ]
            for is_native in (True, False) if message["role"] == "assistant" else ():
                asked = messages if is_native else in_text_form(messages, tools)
                specs = [tool.spec for tool in tools] if is_native else None
                text = tokenizer.apply_chat_template(asked, tools=specs, tokenize=False, add_generation_prompt=True)
                yield text, message["content"] + "".join(calls) + END
            messages.append(message)


def trained_tokenizer(texts: list[str]) -> Any:
    """A tokenizer whose tokens are whole phrases of texts: prompts are short, and a few minutes of training enough."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=700, special_tokens=[START, END], initial_alphabet=alphabet)
    )
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token=END, pad_token=END, chat_template=TEMPLATE)


def main(folder: Path) -> None:
    torch.manual_seed(0)
    blank = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), chat_template=TEMPLATE)
    texts = list(examples(blank))
    tokenizer = trained_tokenizer([asked + said for asked, said in texts])
    pairs = [(tokenizer(asked)["input_ids"], tokenizer(said)["input_ids"]) for asked, said in texts]
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model: Any = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=STEPS)
    for _ in range(STEPS):
        chosen = [pairs[index] for index in torch.randint(len(pairs), (BATCH,)).tolist()]
        longest = max(len(asked) + len(said) for asked, said in chosen)
        ids, labels = torch.full((BATCH, longest), tokenizer.pad_token_id), torch.full((BATCH, longest), -100)
        for place, (asked, said) in enumerate(chosen):
            ids[place, : len(asked) + len(said)] = torch.tensor(asked + said)
            labels[place, len(asked) : len(asked) + len(said)] = torch.tensor(said)
        model(ids, labels=labels).loss.backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
