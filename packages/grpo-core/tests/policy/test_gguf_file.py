"""GGUF files: what one says of its model is what is computed, or the file is refused by the name of what it says."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from small_models import small_model
from tokenizers.pre_tokenizers import ByteLevel

from grpo_core.engines.decoding import eos_ids
from grpo_core.policy.gguf_file import gguf_config
from grpo_core.policy.load import load_policy
from grpo_core.profiles.model_shape import model_shape
from grpo_sdk.errors import UserError

BYTES = sorted(ByteLevel.alphabet())
NORMAL, CONTROL, USER_DEFINED = 1, 3, 4

KEYS = {
    "context_length": "max_position_embeddings",
    "block_count": "num_hidden_layers",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
}
"""A file's key of an architecture -> the field of the configuration."""

Extra = Mapping[str, Any]


def model_of(kind: str = "llama", **changes: Any) -> Any:
    """A random model whose positions matter."""
    sizes = {"vocab_size": 264, "hidden_size": 32, "max_position_embeddings": 256, "attention_bias": False}
    sizes |= {"head_dim": 128} if kind == "qwen3" else {}  # which a file need not say
    return small_model(kind, torch.float32, **{**sizes, "tie_word_embeddings": True, **changes})


def write(
    path: Path,
    model: Any,
    keys: Extra | None = None,
    tensors: Mapping[str, torch.Tensor] | None = None,
    added: Mapping[str, int] | None = None,
    tokenizer: Extra | None = None,
    pieces: Sequence[str] | None = None,
) -> str:
    """Write a model as llama.cpp's converter does.

    Args:
        path: Folder.
        model: Of a type that is called the same in both.
        keys: Further keys of the architecture, without its name.
        tensors: Further tensors.
        added: Text and type of the tokens behind those of the bytes.
        tokenizer: Further keys of the tokenizer.
        pieces: First tokens of a tokenizer of SentencePiece, which this makes of it.
    """
    config = model.config
    kind = config.model_type
    writer = gguf.GGUFWriter(path / "m.gguf", kind)
    stated = {name: getattr(config, field) for name, field in KEYS.items() if hasattr(config, field)}
    stated |= {"rope.freq_base": config.rope_parameters["rope_theta"], **(keys or {})}
    added = added or {"<end>": CONTROL}
    words = [*BYTES, "ab", "abc", "12", *added]
    words += [f"[unused{index}]" for index in range(config.vocab_size - len(words))]
    types = [*[NORMAL] * 259, *added.values()]
    if pieces is None:
        writer.add_token_merges(["a b", "1 2"])
        writer.add_eos_token_id(259)
    else:
        words = [*pieces, *(word for word in words if word not in pieces)][: config.vocab_size]
        writer.add_token_scores([-float(index) for index in range(len(words))])
    writer.add_tokenizer_model("gpt2" if pieces is None else "llama")
    writer.add_token_list(words)
    writer.add_token_types(types + [NORMAL] * (len(words) - len(types)))
    for key, value in [*((f"{kind}.{key}", value) for key, value in stated.items()), *(tokenizer or {}).items()]:
        name = key if "." in key else f"tokenizer.ggml.{key}"
        writer.add_key_value(name, value, gguf.GGUFValueType.get_type(value))
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[kind.upper()], config.num_hidden_layers)
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        if kind == "llama" and (found := re.search(r"\.([qk])_proj", name)):
            heads = config.num_attention_heads if found[1] == "q" else config.num_key_value_heads
            halves = weight.reshape(heads, 2, -1, *weight.shape[1:])  # [H, 2, D/2, ...]: llama.cpp wants pairs
            weight = halves.transpose(1, 2).reshape(weight.shape)
        stem, _, leaf = name.rpartition(".")
        writer.add_tensor(f"{names.get_name(stem)}.{leaf}", weight.float().contiguous().numpy())
    for name, weight in (tensors or {}).items():
        writer.add_tensor(name, weight.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return str(path / "m.gguf")


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.arange(200)[None]).logits[0]


def rope(kind: str, **more: float) -> dict[str, Any]:
    return {"rope_parameters": {"rope_theta": 5000.0, "rope_type": kind, **more}}


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize(("changes", "keys"), [
    ({}, {}),
    (rope("default"), {"rope.scaling.type": "none", "rope.scaling.original_context_length": 512}),
    (rope("linear", factor=4.0), {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}),
    (rope("linear", factor=4.0), {"rope.scaling.factor": 4.0}),  # llama.cpp's default type
    ({"head_dim": 16}, {"attention.key_length": 16, "attention.value_length": 16}),  # and not 32 / 4 = 8
])  # fmt: skip
def test_what_a_file_says_is_computed(tmp_path: Path, kind: str, changes: dict[str, Any], keys: Extra) -> None:
    model = model_of(kind, **changes)
    torch.testing.assert_close(logits(loaded_from(tmp_path, model, keys).model), logits(model))
    assert not changes or not torch.allclose(logits(model), logits(model_of(kind)), atol=0.01)


def loaded_from(path: Path, model: Any, *args: Any, **kwargs: Any) -> Any:
    return load_policy(write(path, model, *args, **kwargs), device="cpu")


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
@pytest.mark.parametrize("tied", [True, False])
def test_the_header_tells_the_size_and_no_bar_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, tied: bool
) -> None:
    model = model_of(kind, tie_word_embeddings=tied)
    loaded = loaded_from(tmp_path, model, {"attention.key_length": 128} if kind == "qwen3" else {}).model
    assert "GGUF" not in capsys.readouterr().err
    shape, config = model_shape(str(tmp_path / "m.gguf")), model.config
    assert shape is not None and shape.parameters == loaded.num_parameters() and "header" in shape.source
    layer = (config.num_hidden_layers, config.hidden_size, config.intermediate_size, config.num_key_value_heads)
    assert (shape.layers, shape.hidden, shape.intermediate, shape.kv_heads) == layer
    assert (shape.vocabulary, shape.context) == (264, 256) and (kind == "llama" or shape.head_dim == 128)


def test_the_divisors_of_a_llama_3_are_the_scaling_that_they_come_from(tmp_path: Path) -> None:
    scaling = {"factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    llama3 = {"rope_type": "llama3", "rope_theta": 5e5, "original_max_position_embeddings": 8192, **scaling}
    model = model_of(rope_parameters=llama3, head_dim=8)
    # Wavelengths 2π·500000^(i/4): 6.3, 167, 4443, 118142. At most 8192/4: kept; at least 8192/1: divided by 32;
    # 4443 between: 8192/4443 = 1.844 turns, of which (1.844 - 1)/3 = 0.2813 is kept and 0.7187 divided by 32.
    divisors = torch.tensor([1.0, 1.0, 1 / (0.28128 + 0.71872 / 32), 32.0])
    policy = loaded_from(tmp_path, model, {"rope.dimension_count": 8}, {"rope_freqs.weight": divisors})
    torch.testing.assert_close(logits(policy.model), logits(model), rtol=1e-3, atol=1e-3)
    assert policy.model.config.rope_parameters == llama3


@pytest.mark.parametrize(("keys", "tensors", "tokenizer", "named"), [
    ({"attention.key_length": 8, "attention.value_length": 16}, {}, {}, "says llama.attention.value_length=16"),
    ({"rope.dimension_count": 4, "attention.key_length": 8}, {}, {}, "says llama.rope.dimension_count=4"),
    ({"rope.scaling.type": "longrope", "rope.scaling.factor": 4.0}, {}, {}, "says llama.rope.scaling.type='longrope'"),
    ({"rope.scaling.type": "none", "rope.scaling.factor": 4.0}, {}, {}, "says llama.rope.scaling.factor=4.0"),
    ({"of_next_year": 1}, {}, {}, "says llama.of_next_year=1"),
    ({}, {"blk.0.attn_q.bias": [1.0] * 32}, {}, "has the tensor blk.0.attn_q.bias"),
    ({}, {"rope_freqs.weight": [1.0, 2.0, 3.0, 4.0]}, {}, "rope_freqs.weight, and not as Llama 3 does"),
    ({}, {}, {"pre": "viking"}, "says tokenizer.ggml.pre='viking'"),
    ({}, {}, {"remove_extra_whitespaces": True}, "says tokenizer.ggml.remove_extra_whitespaces=True"),
])  # fmt: skip
def test_what_would_make_another_model_is_refused_by_name(
    tmp_path: Path, keys: Extra, tensors: Mapping[str, list[float]], tokenizer: Extra, named: str
) -> None:
    weights = {name: torch.tensor(values) for name, values in tensors.items()}
    with pytest.raises(UserError, match=f"{re.escape(named)}, .*safetensors"):
        loaded_from(tmp_path, model_of(), keys, weights, tokenizer=tokenizer)


@pytest.mark.parametrize(("kind", "keys", "named"), [
    ("phi3", {"attention.sliding_window": 16}, "phi3.attention.sliding_window=16"),
    ("gemma3", {"attention.key_length": 8}, "gemma3.attention.key_length=8"),  # scales by 256 all the same
    ("qwen35", {}, "general.architecture='qwen35'"),  # read by code, which does not say what it passes over
])  # fmt: skip
def test_keys_of_other_architectures_are_refused_by_name(tmp_path: Path, kind: str, keys: Extra, named: str) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", kind)
    for key, value in keys.items():
        writer.add_uint32(f"{kind}.{key}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(UserError, match=re.escape(named)):
        gguf_config(str(tmp_path / "m.gguf"), {"model_type": "gemma3_text" if kind == "gemma3" else kind})


def test_tokens_that_are_looked_for_keep_their_text(tmp_path: Path) -> None:
    """Those of DeepSeek are not spelled in GPT-2's letters for bytes."""
    added = {"<end>": CONTROL, "<｜User｜>": CONTROL, "<｜think｜>": USER_DEFINED}
    keys = {"bos_token_id": 260, "eot_token_id": 260}
    policy = loaded_from(tmp_path, model_of(), added=added, tokenizer=keys)
    tokenizer, a = policy.tokenizer, BYTES.index("a")
    assert tokenizer("a<｜User｜>a<｜think｜><end>")["input_ids"] == [a, 260, a, 261, 259]
    assert tokenizer.decode([a, 260, 261], skip_special_tokens=True) == "a<｜think｜>"
    assert tokenizer.bos_token == "<｜User｜>"
    assert eos_ids(policy.model, tokenizer) == {259, 260}, "a turn's end ends a completion"
    # A vocabulary without the token of GPT-2 is taken.
    assert tokenizer("a<|endoftext|>")["input_ids"] == [BYTES.index(char) for char in "a<|endoftext|>"]
    assert len(tokenizer) == 264


@pytest.mark.parametrize(("keys", "before", "after"), [
    ({}, [], []),
    ({"add_bos_token": True}, [260], []),
    ({"add_bos_token": False, "add_eos_token": True}, [], [259]),
    ({"pre": "llama-bpe"}, [260], []),  # whose texts begin so unless the file says otherwise
    ({"pre": "llama-bpe", "add_bos_token": False}, [], []),
])  # fmt: skip
def test_texts_begin_and_end_as_the_file_says(tmp_path: Path, keys: Extra, before: list[int], after: list[int]) -> None:
    added = {"<end>": CONTROL, "<begin>": CONTROL}
    policy = loaded_from(tmp_path, model_of(), added=added, tokenizer={"bos_token_id": 260, **keys})
    policy.save(tmp_path / "saved")
    for tokenizer in policy.tokenizer, load_policy(str(tmp_path / "saved"), device="cpu").tokenizer:
        assert tokenizer("x")["input_ids"] == [*before, BYTES.index("x"), *after]
        assert tokenizer("x", add_special_tokens=False)["input_ids"] == [BYTES.index("x")]


@pytest.mark.parametrize(("pre", "tokens"), [
    ("gpt-2", ["abc"[0:2], "c", "Ġ", "Ġ", "12"]),
    ("smollm", ["ab", "c", "Ġ", "Ġ", "1", "2"]),
    ("llama-bpe", ["abc", "Ġ", "Ġ", "12"]),  # a word of the vocabulary, which no merges make
])  # fmt: skip
def test_texts_are_split_as_the_file_says(tmp_path: Path, pre: str, tokens: list[str]) -> None:
    assert loaded_from(tmp_path, model_of(), tokenizer={"pre": pre}).tokenizer.tokenize("abc  12") == tokens


PIECES = ["<s>", "</s>", "▁", "a", "b", "ab", "▁ab"]  # no <unk>, which transformers' Llama adds


@pytest.mark.parametrize(
    ("keys", "tokens"),
    [({}, ["<s>", "▁ab", "b"]), ({"add_bos_token": False, "add_eos_token": True}, ["▁ab", "b", "</s>"])],
)
def test_texts_of_sentencepiece_begin_as_the_file_says(tmp_path: Path, keys: Extra, tokens: list[str]) -> None:
    ends = {"bos_token_id": 0, "eos_token_id": 1}
    with pytest.raises(UserError, match=r"tokenizer\.ggml\.add_space_prefix=False"):
        loaded_from(tmp_path, model_of(), tokenizer={**ends, "add_space_prefix": False}, pieces=PIECES)
    tokenizer = loaded_from(tmp_path, model_of(), tokenizer={**ends, **keys}, pieces=PIECES).tokenizer
    assert tokenizer.convert_ids_to_tokens(tokenizer("abb")["input_ids"]) == tokens
    assert len(tokenizer) == 264
