"""Small models from nothing: a byte-level tokenizer and a Llama-type model, so that a task needs no download."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from grpo_core.errors import unknown_name

PAD_TOKEN, EOS_TOKEN = "<|pad|>", "<|end|>"


@dataclass(frozen=True, slots=True)
class Preset:
    """Shape of a new model.

    Attributes:
        hidden_size: Width.
        layers: Depth.
        heads: Attention heads.
        intermediate_size: Width of the MLP.
        context: Positions.
    """

    hidden_size: int
    layers: int
    heads: int
    intermediate_size: int
    context: int


PRESETS = {
    "tiny": Preset(hidden_size=192, layers=4, heads=4, intermediate_size=512, context=512),
    "small": Preset(hidden_size=384, layers=8, heads=6, intermediate_size=1024, context=1024),
}
"""tiny: 1.8 M parameters, 7 MB in float32, trains on a laptop; small: 14 M."""


def byte_tokenizer() -> Any:
    """A tokenizer whose tokens are the 256 bytes and two special ones: any text can be written, none is unknown."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    names = [PAD_TOKEN, EOS_TOKEN, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE(vocab={name: index for index, name in enumerate(names)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=PAD_TOKEN, eos_token=EOS_TOKEN)


def fresh_model(preset: str, seed: int) -> tuple[Any, Any]:
    """A randomly initialised model of a preset's shape, and its tokenizer.

    Raises:
        UnknownNameError: no such preset.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    if preset not in PRESETS:
        raise unknown_name("preset", preset, PRESETS)
    shape, tokenizer = PRESETS[preset], byte_tokenizer()
    torch.manual_seed(seed)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=shape.hidden_size,
            intermediate_size=shape.intermediate_size,
            num_hidden_layers=shape.layers,
            num_attention_heads=shape.heads,
            num_key_value_heads=shape.heads,
            max_position_embeddings=shape.context,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
    return model, tokenizer
