"""What a GGUF file says about its model and that transformers does not take from it.

Transformers passes over a key that it does not know, and the file becomes another model without a word. Each key that
may change what is computed is one that transformers reads, or is honoured here, or is refused by its name.
"""

from __future__ import annotations

import json
import math
import re
from types import SimpleNamespace
from typing import Any

import gguf
import torch
from tokenizers import AddedToken, Tokenizer, pre_tokenizers
from transformers import AutoConfig, PreTrainedTokenizerFast
from transformers import modeling_gguf_pytorch_utils as by_name
from transformers.integrations.gguf import gguf_tokenizer_mapping as reader
from transformers.integrations.gguf.gguf_config_mapping import GGUF_CONFIG_ARCHS, get_gguf_config
from transformers.integrations.gguf.reader import read_gguf_metadata
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from grpo_core.errors import UserError

_FIELDS = {
    "attention.sliding_window": "sliding_window",
    "attention.layer_norm_epsilon": "layer_norm_epsilon",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "expert_feed_forward_length": "moe_intermediate_size",
    "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
}
"""Keys that mean the same in every configuration that has the field."""

_ROPE = {
    "rope.freq_base": "rope_theta",
    "rope.scaling.type": "rope_type",
    "rope.scaling.factor": "factor",
    "rope.scaling.original_context_length": "original_max_position_embeddings",
    "rope.scaling.yarn_beta_fast": "beta_fast",
    "rope.scaling.yarn_beta_slow": "beta_slow",
}

_SCALED = ("llama", "qwen2", "qwen2moe", "qwen3", "qwen3moe")
"""Architectures whose layers and dimensions all have the same positions."""

_ROPE_FACTORS = "rope_freqs.weight"

_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
"""Those of every Llama 3 whose positions are scaled; a file has a divisor for each frequency instead."""

_HARMLESS = re.compile(
    "context_length|feed_forward_length|vocab_size|tensor_data_layout|use_parallel_residual"
    r"|rope\.scaling\.(original_context_length|finetuned)"
)
"""Keys that nothing is computed from by themselves, or that the tensors show as well."""

_TOKENIZER_KEYS = re.compile(
    r"tokenizer\.(chat_templates?(\..+)?|huggingface\.json|ggml\.(\w+_token_id|token_type_count|add_(bos|eos)_token))"
)
"""Keys of a tokenizer that are honoured here, or change nothing."""

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
        UserError: the file says what transformers does not do; names the key.
    """
    metadata, tensors = read_gguf_metadata(path)
    architecture = metadata["general.architecture"]
    prefix = f"{architecture}."
    stated = {key.removeprefix(prefix): value for key, value in metadata.items() if key.startswith(prefix)}
    name = re.sub("[-_]", "", architecture)
    tables: Any = by_name.GGUF_TO_TRANSFORMERS_MAPPING["config"]
    fields: Any = next((tables[key] for key in tables if key.replace("_", "") == name), {})
    read = {key for key, field in fields.items() if field not in (None, "head_dim")}
    if architecture in GGUF_CONFIG_ARCHS:  # read by code: by those of another value, another configuration is made
        made = get_gguf_config(metadata, tensors)
        read |= {key for key in stated if get_gguf_config({**metadata, prefix + key: stated[key] * 2}, tensors) != made}
    known = AutoConfig.for_model(settings["model_type"])
    settings |= {field: stated[key] for key, field in _FIELDS.items() if key in stated and hasattr(known, field)}
    if "attention.key_length" in stated.keys() - read:
        settings["head_dim"] = stated["attention.key_length"]
    rope = {field: stated[key] for key, field in _ROPE.items() if key in stated}
    kind = rope.setdefault("rope_type", "linear" if "factor" in rope else "none")
    if _ROPE_FACTORS in tensors and architecture == "llama":
        rope = _llama3(path, rope)
    elif kind == "yarn":
        rope.setdefault("original_max_position_embeddings", stated["context_length"])
    else:
        rope.pop("original_max_position_embeddings", None)
    if architecture in _SCALED and "factor" in rope and rope["rope_type"] in ("linear", "yarn", "llama3"):
        settings["rope_parameters"] = rope
    elif "rope_theta" in rope:
        settings["rope_theta"] = rope["rope_theta"]
    ends = {metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom")} - {None}
    if len(ends) > 1 and not isinstance(settings.get("eos_token_id"), list):
        settings["eos_token_id"] = sorted(ends)
    config = AutoConfig.for_model(**settings)
    said = _said_by(config)
    for key, value in stated.items():
        is_none = value in (0, "none") and key.endswith(("_count", "_length", ".type"))
        if not (key in read or _HARMLESS.fullmatch(key) or is_none or _is_same(said.get(key), value)):
            raise _refusal(f"it says {prefix}{key}={value!r:.80}")
    return config


def check_tensors(path: str, model: Any) -> None:
    """Refuse a file with weights for which its model has no place, such as a bias.

    Raises:
        UserError: there is one; names it.
    """
    metadata, tensors = read_gguf_metadata(path)
    architecture = metadata["general.architecture"]
    if architecture in GGUF_CONFIG_ARCHS:
        return  # transformers lists them itself
    processor: Any = by_name.TENSOR_PROCESSORS.get(architecture, by_name.TensorProcessor)
    placed = {_ROPE_FACTORS} if architecture == "llama" else set()
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
    _check_tokenizer_keys(metadata, kind, pre)
    architecture, facts, named = reader.get_gguf_tokenizer(path)
    state = json.loads(reader.convert_gguf_tokenizer(architecture, facts)[0].to_str())
    tokens, types = facts["tokens"], facts.get("token_type") or ()
    # Transformers adds those of GPT-2 and Llama, for which the model has no embeddings.
    own = set(tokens)
    state["added_tokens"] = [token for token in state["added_tokens"] if token["content"] in own]
    added = []
    if kind == "gpt2":
        state["model"]["ignore_merges"] = pre in _WHOLE_WORDS
        vocabulary = state["model"]["vocab"]
        spelled = {index: text for text, index in vocabulary.items()}
        for index, (token, what) in enumerate(zip(tokens, types, strict=False)):
            if what in (_CONTROL, _USER_DEFINED) and spelled.get(index, token) != token:  # as the bytes of a text
                vocabulary[token] = vocabulary.pop(spelled[index])
                added.append(AddedToken(token, special=what == _CONTROL, normalized=False))
    tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.add_tokens(added)
    if kind == "gpt2" and pre in _DIGITS_SPLIT:
        digits, words = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, words])
    usual = {"bos": kind == "llama" or pre in _WHOLE_WORDS, "eos": False}
    for end, is_added in usual.items():  # which is none where there is no such token
        named[f"add_{end}_token"] = named[f"{end}_token"] and metadata.get(f"tokenizer.ggml.add_{end}_token", is_added)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **named)


def _check_tokenizer_keys(metadata: dict[str, Any], kind: str, pre: str) -> None:
    is_gemma = metadata["general.architecture"].startswith("gemma")  # its tokenizers alone put no space before a text
    read = {f"tokenizer.{key}" for keys in reader.GGUF_TOKENIZER_MAPPING.values() for key in keys}
    keys = [key for key in metadata if key.startswith("tokenizer.") and not _TOKENIZER_KEYS.fullmatch(key)]
    refused = [key for key in keys if key not in read]
    if kind == "gpt2" and pre not in {*_GPT2_SPLIT, *_DIGITS_SPLIT, *reader.GGUF_PRE_TOKENIZER_SPLITS}:
        refused.append("tokenizer.ggml.pre")
    if kind == "llama" and metadata.get("tokenizer.ggml.add_space_prefix", not is_gemma) is is_gemma:
        refused.append("tokenizer.ggml.add_space_prefix")
    if refused:
        raise _refusal(f"it says {refused[0]}={metadata[refused[0]]!r:.80}")


def _llama3(path: str, rope: dict[str, Any]) -> dict[str, Any]:
    """The scaling of positions that a file's divisors come from."""
    (tensor,) = (tensor for tensor in gguf.GGUFReader(path).tensors if tensor.name == _ROPE_FACTORS)
    divisors = torch.tensor(tensor.data, dtype=torch.float32)  # [D/2]
    width = 2 * len(divisors)
    found = {"rope_theta": 10000.0, **_LLAMA3, **rope, "rope_type": "llama3", "factor": float(divisors.max())}
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](AutoConfig.for_model("llama", head_dim=width, rope_parameters=found))
    if not torch.allclose(found["rope_theta"] ** (-torch.arange(0, width, 2) / width), scaled * divisors, rtol=1e-3):
        raise _refusal(f"it divides frequencies by {_ROPE_FACTORS}, and not as Llama 3 does")
    return found


def _said_by(config: Any) -> dict[str, Any]:
    """What a configuration says, under the names of the file."""
    rope = getattr(config, "rope_parameters", None) or {}
    local, rope = rope.get("sliding_attention", {}), rope.get("full_attention", rope)
    head = getattr(config, "head_dim", None) or config.hidden_size // (
        getattr(config, "num_attention_heads", None) or 1
    )
    is_usual = getattr(config, "query_pre_attn_scalar", head) == head  # which no key states
    return {
        **{key: getattr(config, field, None) for key, field in _FIELDS.items()},
        **{key: rope.get(field) for key, field in _ROPE.items()},
        "rope.freq_base_swa": local.get("rope_theta"),
        "attention.key_length": head if is_usual else None,
        "attention.value_length": head,
        "rope.dimension_count": int(head * rope.get("partial_rotary_factor", 1)),
    }


def _is_same(ours: Any, theirs: Any) -> bool:
    """Whether two values are the same, in the 32 bits of a file."""
    return bool(math.isclose(ours, theirs, rel_tol=1e-6) if isinstance(ours, float) else ours == theirs)


def _refusal(what: str) -> UserError:
    return UserError(
        f"{what}, which transformers does not take from a GGUF file, and the model would be another one. Give what the "
        "file was made of: a folder with safetensors, or a hub id."
    )
