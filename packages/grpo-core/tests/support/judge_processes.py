"""The process of a judge that takes what a call says, and small models that classify."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def make(name: str) -> Callable[[bytes], bytes]:
    """Grades a text by how many are in its batch; `die` and `hang` do as they say."""
    if name == "broken":
        raise RuntimeError("this model is broken")

    def handle(payload: bytes) -> bytes:
        calls = json.loads(payload)
        return json.dumps([_reply(call["messages"][1]["content"], len(calls)) for call in calls]).encode()

    return handle


def _reply(content: str, count: int) -> dict[str, Any]:
    if "die" in content:
        os._exit(3)
    if "hang" in content:
        time.sleep(60)
    nonce = content.rpartition("verdict-")[2].partition(":")[0]
    return {"text": f"verdict-{nonce}: {count}", "input_tokens": 7, "output_tokens": 2}


def small_classifier(folder: Path, labels: tuple[str, ...], *, head: bool = True) -> str:
    """Save a classifier of random weights, with a tokenizer of words; without a head, its base model."""
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

    words = {"[PAD]": 0, "[UNK]": 1, "please": 2, "go": 3, "away": 4}
    tokenizer = Tokenizer(WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]").save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=5, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8,
        max_position_embeddings=32, initializer_range=1.0, id2label=dict(enumerate(labels)),
        label2id={label: index for index, label in enumerate(labels)},
    )  # fmt: skip
    model = BertForSequenceClassification(config)
    (model if head else model.bert).save_pretrained(folder)
    return str(folder)
