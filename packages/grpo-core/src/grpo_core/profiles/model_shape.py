"""Size and shape of a model, read from its config.json and the headers of its weights: nothing is loaded."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import orjson
from safetensors import SafetensorError, safe_open

from grpo_sdk.hub.cache import cached_file, fetched_config
from grpo_sdk.plugins.host import PluginHost
from grpo_sdk.plugins.models import adapter_base, model_source

MAX_CONFIG_BYTES = 4 << 20

MAX_HEADER_BYTES = 64 << 20
"""Of a GGUF file; a vocabulary of 262,144 tokens with its merges takes 15 MiB."""

MAX_SIZE, MAX_PARAMETERS = 2**26, 10**15
"""Beyond any model there is: what a file says above them is not believed."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A decoder-only transformer, as far as its memory depends on it.

    Attributes:
        parameters: Number of parameters, tied ones counted once.
        layers: Number of decoder layers.
        hidden: Width of the residual stream.
        intermediate: Width inside an MLP.
        vocabulary: Number of rows of the embeddings.
        heads: Attention heads.
        kv_heads: Heads of keys and values.
        head_dim: Width of a head.
        context: Longest sequence in tokens, where the configuration says it.
        source: Where the numbers come from.
    """

    parameters: int
    layers: int
    hidden: int
    intermediate: int
    vocabulary: int
    heads: int
    kv_heads: int
    head_dim: int
    context: int | None = None
    source: str = ""

    @property
    def kv_values_per_token(self) -> int:
        """Numbers that one token's keys and values hold."""
        return 2 * self.layers * self.kv_heads * self.head_dim

    @property
    def linear_parameters(self) -> int:
        """Parameters of all linear layers, without embeddings and head."""
        return self.layers * sum(inputs * outputs for inputs, outputs in self.linear_layers)

    @property
    def linear_layers(self) -> tuple[tuple[int, int], ...]:
        """(inputs, outputs) of the linear layers of one decoder layer, with a gated MLP."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        attention = ((self.hidden, queries), (self.hidden, keys), (self.hidden, keys), (queries, self.hidden))
        mlp = ((self.hidden, self.intermediate), (self.hidden, self.intermediate), (self.intermediate, self.hidden))
        return (*attention, *mlp)

    def lora_parameters(self, rank: int) -> int:
        """Parameters of an adapter of this rank on all linear layers."""
        return self.layers * sum(rank * (inputs + outputs) for inputs, outputs in self.linear_layers)


def model_shape(name: str, host: PluginHost | None = None) -> ModelShape | None:
    """The shape of the model that `name` means; None where it cannot be known without downloading weights.

    A hub model is looked up in the local cache, then among `KNOWN`, then its config.json is fetched.

    Raises:
        UserError: there is no such model.
    """
    source = model_source(name, host)
    if source.kind == "adapter":
        return model_shape(adapter_base(source.location), host)
    if source.kind == "gguf":
        return _of_gguf(Path(source.location))
    if source.kind != "hub":
        return _of_folder(Path(source.location), f"{name}'s config.json")
    return _of_hub(name)


def shape_of(config: Mapping[str, Any], source: str, parameters: int | None = None) -> ModelShape | None:
    """The shape that a config.json describes; None where it lacks what every decoder has, or none can be so large.

    Args:
        config: Content of config.json, not trusted.
        source: Where it comes from.
        parameters: Counted in the weights; by default computed from the shape.
    """
    text = config.get("text_config")
    facts = {**config, **text} if isinstance(text, Mapping) else config

    def whole(*names: str) -> int | None:
        for name in names:
            value = facts.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MAX_SIZE:
                return value
        return None

    layers, hidden = whole("num_hidden_layers", "n_layer"), whole("hidden_size", "n_embd")
    vocabulary, heads = whole("vocab_size"), whole("num_attention_heads", "n_head")
    if layers is None or hidden is None or vocabulary is None or heads is None:
        return None
    intermediate = whole("intermediate_size", "n_inner") or 4 * hidden
    kv_heads, head_dim = whole("num_key_value_heads") or heads, whole("head_dim") or max(1, hidden // heads)
    context = whole("max_position_embeddings", "n_positions")
    shape = ModelShape(0, layers, hidden, intermediate, vocabulary, heads, kv_heads, head_dim, context, source)
    embeddings = vocabulary * hidden * (1 if facts.get("tie_word_embeddings", True) else 2)
    counted = shape.linear_parameters + (2 * layers + 1) * hidden + embeddings if parameters is None else parameters
    return replace(shape, parameters=counted) if counted <= MAX_PARAMETERS else None


def _of_folder(folder: Path, source: str) -> ModelShape | None:
    config = _json_object(folder / "config.json")
    return None if config is None else shape_of(config, source, _counted(folder))


def _of_hub(name: str) -> ModelShape | None:
    if (cached := cached_file(name, "config.json")) is not None:
        return _of_folder(cached.parent, "the cached config.json")
    if name in KNOWN:
        return shape_of(KNOWN[name], "the published config.json")
    path = fetched_config(name)
    return None if path is None else _of_folder(path.parent, "the hub's config.json")


def _of_gguf(path: Path) -> ModelShape | None:
    try:
        with path.open("rb") as file:
            facts, tensors = _gguf_header(file)
    except (OSError, ValueError, KeyError, struct.error):  # a damaged file: loading it says what is wrong
        return None
    config = {field: facts.get(f"{facts.get('general.architecture')}.{key}") for key, field in _GGUF_KEYS.items()}
    config["vocab_size"] = tensors.get("token_embd.weight", (None,))[-1]
    return shape_of(config, "the GGUF file's header", sum(map(math.prod, tensors.values())))


def _gguf_header(file: BinaryIO) -> tuple[dict[str, Any], dict[str, tuple[int, ...]]]:
    """Read numbers and texts of a GGUF file by key, and sizes of its tensors by name, fastest dimension first.

    The format is that of docs/gguf.md of ggml, versions 2 and 3. Elements of arrays are skipped.

    Raises:
        ValueError, KeyError, struct.error: it is another format, ends early, or is longer than `MAX_HEADER_BYTES`.
    """

    def take(form: str) -> tuple[Any, ...]:
        return struct.unpack(f"<{form}", content(struct.calcsize(f"<{form}")))

    def content(size: int) -> bytes:
        if size > MAX_HEADER_BYTES - file.tell():
            raise ValueError("the header is too long")
        return file.read(size)

    def text() -> str:
        return content(*take("Q")).decode()

    def value(kind: int) -> Any:
        if kind in _GGUF_NUMBERS:
            return take(_GGUF_NUMBERS[kind])[0]
        if kind == _GGUF_TEXT:
            return text()
        if kind != _GGUF_ARRAY:
            raise ValueError(f"a value of kind {kind}")
        inner, count = take("IQ")
        if inner == _GGUF_TEXT:
            for _ in range(count):
                content(*take("Q"))
        else:
            content(count * struct.calcsize(_GGUF_NUMBERS[inner]))
        return None

    magic, version, n_tensors, n_values = take("4sIQQ")
    if magic != b"GGUF" or version not in (2, 3):
        raise ValueError("no GGUF file of version 2 or 3")
    facts = {text(): value(*take("I")) for _ in range(n_values)}
    tensors = {}
    for _ in range(n_tensors):
        name, (dimensions,) = text(), take("I")
        tensors[name] = take(f"{dimensions}Q")
        take("IQ")  # type and offset
    return facts, tensors


def _json_object(path: Path) -> dict[str, Any] | None:
    try:
        content = path.read_bytes() if path.stat().st_size <= MAX_CONFIG_BYTES else b""
        found = orjson.loads(content)
    except (OSError, orjson.JSONDecodeError):
        return None
    return found if isinstance(found, dict) else None


def _counted(folder: Path) -> int | None:
    """Parameters in the safetensors files of a folder; None where there is none, or one cannot be read."""
    files = sorted(folder.glob("*.safetensors"))
    index = _json_object(folder / "model.safetensors.index.json")
    if index is not None and isinstance(index.get("weight_map"), dict):
        listed = {str(file) for file in index["weight_map"].values()}
        if listed - {file.name for file in files}:
            return None  # a part of the weights
    try:
        return sum(map(_in_file, files)) or None
    except (OSError, SafetensorError):
        return None


def _in_file(path: Path) -> int:
    with safe_open(path, framework="numpy") as file:  # which checks the header, and reads nothing else
        return sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118 # no mapping


_GGUF_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_GGUF_TEXT, _GGUF_ARRAY = 8, 9
"""Kinds of values in a GGUF file."""

_GGUF_KEYS = {
    "block_count": "num_hidden_layers",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "context_length": "max_position_embeddings",
}
"""Key of a GGUF file, without its architecture -> field of a config.json."""

_FIELDS = (
    "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size",
    "vocab_size", "max_position_embeddings", "tie_word_embeddings",
)  # fmt: skip

_PUBLISHED = (
    # hub id, what the id of its other form ends with, `_FIELDS`
    ("Qwen/Qwen2.5-0.5B", "-Instruct", 896, 24, 14, 2, 64, 4864, 151936, 32768, True),
    ("Qwen/Qwen2.5-1.5B", "-Instruct", 1536, 28, 12, 2, 128, 8960, 151936, 32768, True),
    ("Qwen/Qwen2.5-3B", "-Instruct", 2048, 36, 16, 2, 128, 11008, 151936, 32768, True),
    ("Qwen/Qwen2.5-7B", "-Instruct", 3584, 28, 28, 4, 128, 18944, 152064, 32768, False),
    ("Qwen/Qwen3-0.6B", "-Base", 1024, 28, 16, 8, 128, 3072, 151936, 40960, True),
    ("Qwen/Qwen3-1.7B", "-Base", 2048, 28, 16, 8, 128, 6144, 151936, 40960, True),
    ("Qwen/Qwen3-4B", "-Base", 2560, 36, 32, 8, 128, 9728, 151936, 40960, True),
    ("Qwen/Qwen3-8B", "-Base", 4096, 36, 32, 8, 128, 12288, 151936, 40960, False),
    ("HuggingFaceTB/SmolLM2-135M", "-Instruct", 576, 30, 9, 3, 64, 1536, 49152, 8192, True),
    ("HuggingFaceTB/SmolLM2-360M", "-Instruct", 960, 32, 15, 5, 64, 2560, 49152, 8192, True),
    ("HuggingFaceTB/SmolLM2-1.7B", "-Instruct", 2048, 24, 32, 32, 64, 8192, 49152, 8192, True),
    ("meta-llama/Llama-3.2-1B", "-Instruct", 2048, 16, 32, 8, 64, 8192, 128256, 131072, True),
    ("meta-llama/Llama-3.2-3B", "-Instruct", 3072, 28, 24, 8, 128, 8192, 128256, 131072, True),
)

KNOWN: Mapping[str, Mapping[str, Any]] = {
    f"{name}{suffix}": dict(zip(_FIELDS, values, strict=True))
    for name, other, *values in _PUBLISHED
    for suffix in ("", other)
}
"""Hub id -> the shape that its config.json gives, for models that are often trained: a dry run needs no network."""
