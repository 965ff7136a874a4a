"""A model's shape is read off its files: nothing is loaded, nothing damaged is believed."""

import json
import struct
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

from grpo_core.profiles.model_shape import KNOWN, model_shape, shape_of

LLAMA = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 96, "vocab_size": 300, "max_position_embeddings": 512, "tie_word_embeddings": True,
}  # fmt: skip


def folder_of(path: Path, config: object, weights: dict[str, torch.Tensor] | None = None) -> Path:
    (path / "config.json").write_text(json.dumps(config))
    if weights is not None:
        save_file(weights, path / "model.safetensors")
    return path


def parameters(folder: Path) -> int:
    shape = model_shape(str(folder))
    assert shape is not None
    return shape.parameters


@pytest.mark.parametrize("tied", [True, False])
def test_parameters_of_a_shape_and_an_adapter_are_those_of_the_model(tied: bool) -> None:
    model = LlamaForCausalLM(LlamaConfig(**{**LLAMA, "tie_word_embeddings": tied}))
    shape = shape_of(model.config.to_dict(), "its config.json")
    assert shape is not None and shape.parameters == model.num_parameters()
    adapted = get_peft_model(model, LoraConfig(r=8, target_modules="all-linear"))
    assert shape.lora_parameters(8) == adapted.get_nb_trainable_parameters()[0]


@pytest.mark.parametrize(("name", "millions"), [
    ("Qwen/Qwen2.5-0.5B-Instruct", 494.0),
    ("Qwen/Qwen2.5-7B-Instruct", 7615.6),
    ("HuggingFaceTB/SmolLM2-135M-Instruct", 134.5),
    ("Qwen/Qwen3-0.6B", 596.0),
    ("meta-llama/Llama-3.2-1B", 1235.8),
])  # fmt: skip
def test_known_models_have_the_published_number_of_parameters(name: str, millions: float) -> None:
    shape = shape_of(KNOWN[name], "")
    assert shape is not None
    assert shape.parameters / 1e6 == pytest.approx(millions, rel=2e-3)  # biases of attention are left out


def test_weights_on_disk_are_counted_if_all_are_there(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, LLAMA, {"a": torch.zeros(7, 3, dtype=torch.bfloat16), "b": torch.zeros(5)})
    assert parameters(folder) == 26
    index = {"weight_map": {"a": "model.safetensors", "c": "model-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert parameters(folder) > 26


@pytest.mark.parametrize("config", [
    [], {"hidden_size": 64}, {**LLAMA, "num_hidden_layers": True}, {**LLAMA, "hidden_size": 64.0},
    {**LLAMA, "num_hidden_layers": 2**31 - 1}, {**LLAMA, "num_attention_heads": 2**26, "head_dim": 2**26},
    {**LLAMA, "text_config": {"hidden_size": -3}},
])  # fmt: skip
def test_a_config_that_describes_no_decoder_gives_no_shape(tmp_path: Path, config: object) -> None:
    assert model_shape(str(folder_of(tmp_path, config))) is None


@pytest.mark.parametrize("content", [b"", b"\xff" * 16, b"\x02\0\0\0\0\0\0\0{]"])
def test_damaged_weights_are_not_counted(tmp_path: Path, content: bytes) -> None:
    folder = folder_of(tmp_path, LLAMA)
    expected = parameters(folder)
    (folder / "model.safetensors").write_bytes(content)
    assert parameters(folder) == expected


def gguf(*parts: bytes, tensors: int = 0, values: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, values) + b"".join(parts)


KEY = struct.pack("<Q1s", 1, b"k")
HUGE = 2**63


@pytest.mark.parametrize("content", [
    b"", b"\0" * 64, gguf(version=1), gguf(), gguf(values=HUGE), gguf(tensors=HUGE),
    gguf(struct.pack("<Q", HUGE), values=1), gguf(KEY, struct.pack("<I", 77), values=1),
    gguf(KEY, struct.pack("<IIQ", 9, 8, HUGE), values=1), gguf(KEY, struct.pack("<IIQ", 9, 0, HUGE), values=1),
    gguf(KEY, struct.pack("<IIQ", 9, 9, 1), values=1), gguf(struct.pack("<Q1s", 1, b"\xff"), values=1),
])  # fmt: skip
def test_a_damaged_gguf_header_gives_no_shape(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.gguf").write_bytes(content)
    assert model_shape(str(tmp_path / "m.gguf")) is None
