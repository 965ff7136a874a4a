"""New small models: a tokenizer over bytes and a Llama-type model, so that a task needs no download."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_sdk.errors import UserError, unknown_name
from grpo_sdk.plugins.models import model_source

PAD_TOKEN, EOS_TOKEN = "<|pad|>", "<|end|>"

BYTES = 256

WORDS = r"\n| ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+| +|\s"
"""Pieces that no learned token crosses: a line break, a word or signs with the space before them, one digit, spaces.

Digits stand alone so that numbers can be computed with; a line break does, so that the last token of a prompt is the
same whatever follows it.
"""


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
    "medium": Preset(hidden_size=256, layers=6, heads=8, intermediate_size=704, context=512),
    "deep": Preset(hidden_size=288, layers=8, heads=9, intermediate_size=704, context=512),
    "small": Preset(hidden_size=384, layers=8, heads=6, intermediate_size=1024, context=1024),
}
"""tiny: 1.8 M parameters, 7 MB in float32, trains on a laptop; medium: 4.9 M; deep: 7.6 M; small: 14 M."""

OWN_SHARE = 0.1
"""Share of the variance of a new token's vector that it has for itself; the rest comes from its bytes."""


def byte_tokenizer() -> Any:
    """A tokenizer whose tokens are the 256 bytes and two special ones: any text can be written, none is unknown."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    names = [PAD_TOKEN, EOS_TOKEN, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE(vocab={name: index for index, name in enumerate(names)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return _over_bytes(tokenizer)


def check_vocab_size(vocab_size: int) -> None:
    """Check that a vocabulary has room for the bytes and the two special tokens.

    Raises:
        UserError: it has not.
    """
    least = BYTES + len((PAD_TOKEN, EOS_TOKEN))
    if vocab_size < least:
        raise UserError(f"a vocabulary of {vocab_size}: the least is {least}, all bytes and two others.")


def learned_tokenizer(texts: Iterable[str], vocab_size: int) -> Any:
    """A byte-level BPE tokenizer learned from texts: fewer tokens than bytes, and any text can be written.

    Args:
        texts: Texts like those that it will encode.
        vocab_size: Tokens at most, the bytes and the two special ones included.

    Raises:
        UserError: there is no room for the bytes.
    """
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

    check_vocab_size(vocab_size)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[PAD_TOKEN, EOS_TOKEN],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return _over_bytes(tokenizer)


def _over_bytes(tokenizer: Any) -> Any:
    from tokenizers import decoders
    from transformers import PreTrainedTokenizerFast

    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=PAD_TOKEN, eos_token=EOS_TOKEN)


def tokenizer_location(name: str) -> str:
    """The folder or hub id that a tokenizer is loaded from: a folder with a tokenizer alone, or that of a model.

    Raises:
        UserError: there is none of that name.
    """
    folder = Path(name).expanduser()
    return str(folder) if (folder / "tokenizer.json").is_file() else model_source(name).location


def tokenizer_of(name: str) -> Any:
    """The tokenizer of an embedded model, of a model's folder, or of a folder with a tokenizer alone.

    Raises:
        UserError: there is none of that name, or it has no token that ends a text.
    """
    from grpo_core.policy.pretrained import load_tokenizer

    tokenizer = load_tokenizer(tokenizer_location(name), f"--tokenizer {name}")
    if tokenizer.eos_token_id is None or tokenizer.pad_token_id is None:
        raise UserError(f"--tokenizer {name}: a new model needs one with an end token and a padding token.")
    return tokenizer


def fresh_model(preset: str, seed: int, tokenizer: Any = None) -> tuple[Any, Any]:
    """A randomly initialised model of a preset's shape, and its tokenizer: of bytes, if none is given.

    Raises:
        UnknownNameError: no such preset.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    if preset not in PRESETS:
        raise unknown_name("preset", preset, PRESETS)
    shape, tokenizer = PRESETS[preset], tokenizer or byte_tokenizer()
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
    _compose_embeddings(model.get_input_embeddings().weight.data, tokenizer)
    return model, tokenizer


def _compose_embeddings(embeddings: Any, tokenizer: Any) -> None:
    """Begin the vector of each token of several bytes as their vectors' sum, of the same length, and a part of its own.

    Tokens that share bytes begin alike, so that what a model learns of one it need not learn of each: of a piece on
    one square, for those on the other 63.

    Args:
        embeddings: [tokens, width], new; changed in place.
        tokenizer: Tokenizer whose token names spell their bytes; a token with another sign in it keeps its vector.
    """
    names = tokenizer.get_vocab()
    for name, index in names.items():
        parts = [names.get(sign) for sign in name]
        if len(parts) > 1 and None not in parts and name not in tokenizer.all_special_tokens:
            shared = embeddings[parts].sum(dim=0) / len(parts) ** 0.5
            embeddings[index] = OWN_SHARE**0.5 * embeddings[index] + (1 - OWN_SHARE) ** 0.5 * shared
