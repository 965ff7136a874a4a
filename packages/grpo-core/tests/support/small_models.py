"""Random models of many families, small, whose logits are far from uniform."""

from collections.abc import Sequence
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM

from grpo_core.policy.fresh import byte_tokenizer
from grpo_sdk.endpoints.base import Engine, Request, Sampling
from grpo_sdk.endpoints.completion import Completion

TOKENIZER = byte_tokenizer()
VOCABULARY, CONTEXT = 258, 160
ENDS = [256, *range(8)]
"""Tokens that end a completion: a random model would hardly ever draw one of 258."""

SHAPE = {
    "vocab_size": VOCABULARY, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": CONTEXT,
    "bos_token_id": None, "eos_token_id": None, "pad_token_id": 0,
}  # fmt: skip
GPT2 = {"vocab_size": VOCABULARY, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": CONTEXT}

FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"attention_bias": True},
    "smollm2": {"kind": "llama", "tie_word_embeddings": True},  # a Llama with grouped queries and tied embeddings
    "mistral": {"sliding_window": None},
    "qwen2": {},
    "qwen3": {"head_dim": 8},
    "phi3": {},
    "gemma3": {"kind": "gemma3_text", "head_dim": 8, "sliding_window": CONTEXT},  # which is not reached
    "granite": {"logits_scaling": 0.5},
    "gpt2": {"scale_attn_by_inverse_layer_idx": True, "bos_token_id": 0, "eos_token_id": 256},
    "adapter": {"kind": "llama", "lora": ["q_proj", "down_proj"]},
}
"""Families whose prompts can be shared: name -> what differs from the shape, and `kind`, their name in transformers."""


def small_model(
    name: str = "llama", dtype: torch.dtype = torch.float64, *, std: float | None = 0.3, **changes: Any
) -> Any:
    """A model of a family, or of another type of transformers, in evaluation mode.

    Args:
        name: One of `FAMILIES`, or a type of models.
        dtype: Of the weights.
        std: Of every weight; None leaves them as a fresh model has them.
        changes: Of the configuration, and `lora`, the modules that have an adapter.
    """
    settings = {"kind": name, **FAMILIES.get(name, {}), **changes}
    kind, modules = settings.pop("kind"), settings.pop("lora", None)
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **{**(GPT2 if kind == "gpt2" else SHAPE), **settings})
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.generation_config.eos_token_id = ENDS
    if modules:
        model = get_peft_model(model, LoraConfig(r=2, target_modules=modules))
    for parameter in model.parameters() if std else ():
        torch.nn.init.normal_(parameter, std=std)
    return model.to(dtype).eval()


def sampled(engine: Engine, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
    """The completions of some requests, each once, in their order."""
    found = dict(engine.generate(requests, sampling))
    assert sorted(found) == list(range(len(requests)))
    return [found[index] for index in range(len(requests))]
