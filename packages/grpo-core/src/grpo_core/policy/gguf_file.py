"""What a GGUF file says about its model and that transformers does not take from it.

Transformers passes over a key that it does not know, and the file becomes another model without a word. Each key that
may change what is computed is one that transformers reads, or is honoured here, or is refused by its name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import gguf
import torch
from tokenizers import AddedToken, Tokenizer, pre_tokenizers
from transformers import AutoConfig, PreTrainedTokenizerFast
from transformers import modeling_gguf_pytorch_utils as by_name
from transformers.integrations.gguf import gguf_tokenizer_mapping as reader
from transformers.integrations.gguf.reader import read_gguf_metadata
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from grpo_sdk.errors import UserError

_SCALED = ("llama", "qwen2", "qwen2moe", "qwen3", "qwen3moe")
"""Architectures whose layers and dimensions all have the same positions."""

_ROPE_FACTORS = "rope_freqs.weight"

_HARMLESS = re.compile(
    "context_length|feed_forward_length|vocab_size|tensor_data_layout|use_parallel_residual"
    r"|rope\.scaling\.(original_context_length|finetuned)"
)
"""Keys that nothing is computed from by themselves, or that the tensors show as well."""

_TOKENIZER_KEYS = re.compile(
    r"tokenizer\.(chat_templates?(\..+)?|huggingface\.json|ggml\.(model|pre|tokens|scores|merges|token_type(_count)?"
    r"|\w+_token_id|add_(bos|eos)_token|add_space_prefix))"
)
"""Keys of a tokenizer that are honoured, or change nothing."""

_GPT2_SPLIT = ("default", "gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "exaone4", "granite-docling")
_DIGITS_SPLIT = ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b")
_WHOLE_WORDS = ("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "tekken")
"""Values of `tokenizer.ggml.pre`: GPT-2's split; the same once each digit is set apart; one where a word in the
vocabulary needs no merges and texts begin with the beginning-of-sequence token. Source: llama.cpp, llama-vocab.cpp."""

_CONTROL, _USER_DEFINED = 3, 4
"""Types of tokens that are looked for before a text is split."""


def gguf_config(path: str, settings: dict[str, Any]) -> Any:
    """Return the configuration of the model in a file.

    Args:
        path: The file.
        settings: What transformers makes of it.

    Raises:
        UserError: the file says what is not done; names the key.
    """
    metadata, tensors = read_gguf_metadata(path)
    architecture = metadata["general.architecture"]
    prefix = f"{architecture}."
    stated = {key.removeprefix(prefix): value for key, value in metadata.items() if key.startswith(prefix)}
    tables: Any = by_name.GGUF_TO_TRANSFORMERS_MAPPING["config"]
    fields = {name.replace("_", ""): table for name, table in tables.items()}.get(re.sub("[-_]", "", architecture))
    if fields is None:  # transformers reads it by code, which does not say what it passes over
        raise _refusal(f"it says general.architecture={architecture!r}")
    read = {key for key, field in fields.items() if field not in (None, "head_dim")}
    done = {"rope.scaling.type": "none"}
    if "attention.key_length" in stated:
        settings["head_dim"] = stated["attention.key_length"]
    theta = stated.get("rope.freq_base", 10000.0)  # llama.cpp's default
    factor, scaling = stated.get("rope.scaling.factor"), stated.get("rope.scaling.type", "linear")
    if architecture in _SCALED and _ROPE_FACTORS in tensors:
        settings["rope_parameters"] = _llama3(path, theta)
    elif architecture in _SCALED and factor and scaling == "linear":
        settings["rope_parameters"] = {"rope_type": scaling, "rope_theta": theta, "factor": factor}
        done = {"rope.scaling.type": scaling, "rope.scaling.factor": factor}
    ends = {metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom")} - {None}
    if len(ends) > 1:
        settings["eos_token_id"] = sorted(ends)
    config = AutoConfig.for_model(**settings)
    head = getattr(config, "head_dim", None) or config.hidden_size // getattr(config, "num_attention_heads", 1)
    done |= {"attention.value_length": head, "rope.dimension_count": head}
    done["attention.key_length"] = getattr(config, "query_pre_attn_scalar", head)  # which no key states
    for key, value in stated.items():
        if not (key in read or _HARMLESS.fullmatch(key) or done.get(key) == value):
            raise _refusal(f"it says {prefix}{key}={value!r:.80}")
    return config


@contextmanager
def without_bar() -> Iterator[None]:
    """Hide the bar of transformers' reader of tensors, which its switch for bars leaves on."""
    reading: Any = by_name
    bar, reading.tqdm = reading.tqdm, lambda tensors, **options: tensors
    try:
        yield
    finally:
        reading.tqdm = bar


def check_tensors(path: str, model: Any) -> None:
    """Refuse a file with weights for which its model has no place, such as a bias.

    Raises:
        UserError: there is one; names it.
    """
    metadata, tensors = read_gguf_metadata(path)
    architecture = metadata["general.architecture"]
    processor: Any = by_name.TENSOR_PROCESSORS.get(architecture, by_name.TensorProcessor)
    placed = {_ROPE_FACTORS} if architecture in _SCALED else set()
    for part in (model, model.base_model):  # alone: for each module below them, it makes the same table again
        alone = SimpleNamespace(config=model.config, state_dict=part.state_dict, named_children=dict)
        placed |= by_name.get_gguf_hf_weights_map(alone, processor()).keys()
    if left_out := [name for name in tensors if not {name, name.removesuffix(".weight")} & placed]:
        raise _refusal(f"it has the tensor {left_out[0]}")


def gguf_tokenizer(path: str) -> Any:
    """Return the tokenizer in a file: its tokens and no others, split and framed as it says.

    Raises:
        UserError: the file says what cannot be done; names the key.
    """
    metadata, _ = read_gguf_metadata(path)
    kind, pre = metadata["tokenizer.ggml.model"], metadata.get("tokenizer.ggml.pre", "default")
    refused = [key for key in metadata if key.startswith("tokenizer.") and not _TOKENIZER_KEYS.fullmatch(key)]
    if kind == "gpt2" and pre not in {*_GPT2_SPLIT, *_DIGITS_SPLIT, *reader.GGUF_PRE_TOKENIZER_SPLITS}:
        refused.append("tokenizer.ggml.pre")
    is_gemma = metadata["general.architecture"].startswith("gemma")  # its tokenizers alone put no space before a text
    if kind == "llama" and metadata.get("tokenizer.ggml.add_space_prefix", not is_gemma) is is_gemma:
        refused.append("tokenizer.ggml.add_space_prefix")
    if refused:
        raise _refusal(f"it says {refused[0]}={metadata.get(refused[0])!r:.80}")
    architecture, facts, named = reader.get_gguf_tokenizer(path)
    state = json.loads(reader.convert_gguf_tokenizer(architecture, facts)[0].to_str())
    state["added_tokens"] = []  # transformers adds some of GPT-2 and Llama, for which the model has no embeddings
    tokens, types = facts["tokens"], facts.get("token_type") or ()
    if kind == "gpt2":
        state["model"]["ignore_merges"] = pre in _WHOLE_WORDS
        state["model"]["vocab"] = {token: index for index, token in enumerate(tokens)}  # not spelled as bytes
    tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.add_tokens([
        AddedToken(token, special=what == _CONTROL, normalized=False)
        for token, what in zip(tokens, types, strict=False)
        if what in (_CONTROL, _USER_DEFINED) and tokenizer.token_to_id(token) is not None
    ])  # fmt: skip
    if kind == "gpt2" and pre in _DIGITS_SPLIT:
        digits, words = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, words])
    usual = {"bos": kind == "llama" or pre in _WHOLE_WORDS, "eos": False}
    for end, is_added in usual.items():  # which is none where there is no such token
        named[f"add_{end}_token"] = named[f"{end}_token"] and metadata.get(f"tokenizer.ggml.add_{end}_token", is_added)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **named)


def _llama3(path: str, theta: float) -> dict[str, Any]:
    """The scaling of positions that a file's divisors of frequencies come from."""
    (tensor,) = (tensor for tensor in gguf.GGUFReader(path).tensors if tensor.name == _ROPE_FACTORS)
    divisors = torch.tensor(tensor.data, dtype=torch.float32)  # [D/2]
    width = 2 * len(divisors)
    found = {"rope_type": "llama3", "rope_theta": theta, "factor": float(divisors.max())}
    found |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}  # of each
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](AutoConfig.for_model("llama", head_dim=width, rope_parameters=found))
    if not torch.allclose(theta ** (-torch.arange(0, width, 2) / width), scaled * divisors, rtol=1e-3):
        raise _refusal(f"it divides frequencies by {_ROPE_FACTORS}, and not as Llama 3 does")
    return found


def _refusal(what: str) -> UserError:
    return UserError(
        f"{what}, which is not honoured in a GGUF file, and the model would be another one. Give what the file was "
        "made of: a folder with safetensors, or a hub id."
    )
