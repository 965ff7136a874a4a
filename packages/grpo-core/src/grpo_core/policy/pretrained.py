"""Loading models, tokenizers and adapters that others saved: none of their code runs, and damage is noticed."""

from __future__ import annotations

import logging
import re
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from grpo_core.algorithms.causal_lm import special_settings
from grpo_core.policy.first_rank import is_on_meta
from grpo_sdk.errors import UserError
from grpo_sdk.hub.cache import why_from_cache
from grpo_sdk.plugins.models import ADAPTER_FILE, ModelSource, adapter_settings, check_adapter

ADAPTER_WEIGHTS = "adapter_model.safetensors"

MAX_LAYERS = 10_000
"""Far above any model: a damaged config.json must not have layers built until memory ends."""

MAX_REASON_CHARS = 300
"""Longest part of a library's error, which may list every type of model that there is."""

_LAYER_COUNTS = ("num_hidden_layers", "num_layers", "n_layer", "n_layers")

_ATTENTION = ("attn_implementation", "_attn_implementation")
"""Keys under which a config.json may name a kernel of the hub, `owner/repository`, which is compiled code."""


_TRAINED = {
    "alpha_pattern", "bias", "ensure_weight_tying", "modules_to_save", "rank_pattern", "target_parameters",
    "trainable_token_indices", "use_dora",
}  # fmt: skip
"""Settings of adapters beside plain LoRA's that are trained; docs/how-to/adapters.md says with what."""

_EXACT = ("pissa", "olora")
"""Initializations that take the adapter out of the base, the same one whenever it is loaded."""

_loading = threading.Lock()
"""Transformers changes torch for the whole process while it builds a model: two threads must not do it at once."""


class _Unusable(Exception):
    """A folder that cannot be loaded; the message says why."""


class StructureError(Exception):
    """A model that cannot be made without reading its weights; the message says why."""


def load_pretrained(
    source: ModelSource, dtype: torch.dtype, options: Mapping[str, Any], *, has_weights: bool = True
) -> tuple[Any, Any]:
    """Load a model and its tokenizer from safetensors (or GGUF) and JSON alone.

    Args:
        source: Anything but an adapter.
        dtype: Type of the weights.
        options: Further arguments of `from_pretrained`.
        has_weights: Whether the weights are read; without them the model is on the meta device.

    Raises:
        StructureError: the weights are not to be read, and no model can be made so.
        UserError: it cannot be loaded as it was saved: missing, damaged, of other shapes than its config.json says,
            with another model's tokenizer, or in need of code of its own; says which.
    """
    location, gguf = source.location, {}
    if source.kind == "gguf":
        from grpo_core.policy.gguf_file import check_tensors, gguf_config, gguf_tokenizer, without_bar

        location, gguf = str(Path(source.location).parent), {"gguf_file": Path(source.location).name}
    if source.kind == "hub":
        why_from_cache(source.location)
    try:
        with _reading("configuration", location):
            settings = _checked_settings(location, gguf)
            config = gguf_config(source.location, settings) if gguf else _config(location)
        with _reading("tokenizer", location):
            tokenizer = gguf_tokenizer(source.location) if gguf else _tokenizer(location)
        if has_weights:
            with _loading, _reading("weights", location), without_bar() if gguf else nullcontext():
                model = _model(location, dtype, {"config": config, **gguf, **options})
        else:
            with _loading:
                model = _structure(config, dtype)
        if gguf:
            with _reading("weights", location):
                check_tensors(source.location, model)
        _check_vocabulary(model, tokenizer)
    except _Unusable as error:
        advice = " Without a network, give a local folder: --model ./folder." if source.kind == "hub" else ""
        raise UserError(f"--model {source.name} cannot be loaded: {error}{advice}") from error
    return model, tokenizer


def load_tokenizer(location: str, given_as: str) -> Any:
    """Load a tokenizer.

    Args:
        location: Folder or hub id.
        given_as: The user's own words, for messages: `--tokenizer ./x`.

    Raises:
        UserError: it cannot be loaded; says why.
    """
    with _errors_of(given_as, "tokenizer", location):
        return _tokenizer(location)


def adapter_folder(adapter: str, given_as: str, *, is_quantized: bool) -> Path:
    """Find and check an adapter, which takes no time, before its base is loaded.

    Args:
        adapter: Folder, or hub id.
        given_as: The user's own words, for messages: `--adapter ./x`.
        is_quantized: Whether it is put on a quantized base.

    Raises:
        UserError: it is missing, of a kind that does not stay one model, or in need of code of its own; says which.
    """
    from huggingface_hub import snapshot_download

    check_adapter(adapter)
    path = Path(adapter).expanduser()
    with _errors_of(given_as, "adapter", path):
        if not adapter.startswith((".", "/", "~")):
            path = Path(snapshot_download(adapter, allow_patterns=[ADAPTER_FILE, ADAPTER_WEIGHTS]))
        _check_adapter(path, is_quantized=is_quantized)
    return path


def load_adapter(model: Any, path: Path, given_as: str) -> Any:
    """Put a LoRA adapter on a model, to be trained further.

    Args:
        model: Its base.
        path: Result of `adapter_folder`.
        given_as: The user's own words, for messages: `--adapter ./x`.

    Raises:
        UserError: it is damaged, or of another model; says which.
    """
    from peft import PeftModel

    with _errors_of(given_as, "adapter", path), warnings.catch_warnings():
        warnings.filterwarnings("error", message="Found missing adapter keys")  # weights would be made up
        loaded = PeftModel.from_pretrained(model, str(path), is_trainable=True, low_cpu_mem_usage=is_on_meta(model))
        _check_adapter_fits(loaded, path)
    return loaded


@contextmanager
def _errors_of(given_as: str, what: str, location: str | Path) -> Iterator[None]:
    """Say of any error that what the user has named cannot be loaded."""
    try:
        with _reading(what, str(location)):
            yield
    except _Unusable as error:
        raise UserError(f"{given_as} cannot be loaded: {error}") from error


@contextmanager
def _reading(what: str, location: str) -> Iterator[None]:
    """Say of any error in which part of a saved model it arose."""
    try:
        yield
    except (_Unusable, MemoryError, torch.OutOfMemoryError):
        raise  # without memory the model may be sound: whoever catches that has advice
    except UserError as error:
        raise _Unusable(str(error)) from error
    except Exception as error:  # the libraries check little: a damaged file makes them raise anything
        raise _Unusable(_reason(what, error, location)) from error


def _checked_settings(location: str, gguf: Mapping[str, str]) -> dict[str, Any]:
    """Refuse what would be acted upon while the configuration is read."""
    from transformers import PreTrainedConfig

    if not gguf and (Path(location) / ADAPTER_FILE).is_file():
        raise _Unusable(
            f"the folder holds both a model (config.json) and an adapter ({ADAPTER_FILE}). Put the adapter into a "
            "folder of its own: --adapter ./adapter."
        )
    try:
        settings, _ = PreTrainedConfig.get_config_dict(location, **gguf)
    except TypeError:  # it asks the JSON for keys
        settings = None
    if not isinstance(settings, dict):
        raise _Unusable("its config.json is not a JSON object.")
    for key, value in _nested(settings):
        if key in _LAYER_COUNTS and isinstance(value, int) and not 0 < value <= MAX_LAYERS:
            raise _Unusable(f"its config.json says {key}={value}; a model has 1 to {MAX_LAYERS}.")
        if key in _ATTENTION and isinstance(value, str) and "/" in value:
            raise _Unusable(f"its config.json asks for the kernel {value}, which is code; none but torch's is run.")
    return settings


def _config(location: str) -> Any:
    from transformers import AutoConfig

    return AutoConfig.from_pretrained(location, trust_remote_code=False)


def _nested(settings: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in settings.items():
        yield key, value
        if isinstance(value, dict):
            yield from ((key if key in _ATTENTION else inner, item) for inner, item in _nested(value))


def _tokenizer(location: str) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(location, trust_remote_code=False)


def _model(location: str, dtype: torch.dtype, options: Mapping[str, Any]) -> Any:
    from transformers import AutoModelForCausalLM

    with _refusals_said_once():
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            location,
            dtype=dtype,
            trust_remote_code=False,
            use_safetensors=True,  # never a pickle
            output_loading_info=True,
            **options,
        )
    model, info = loaded  # a pair, which its annotation does not say
    if missing := sorted(info["missing_keys"]):
        raise _Unusable(f"its weights lack {_listed(missing)}; they are incomplete, or of another model type.")
    own = {_numberless(name) for name in model.state_dict()}
    if layers := sorted(name for name in info["unexpected_keys"] if _numberless(name) in own):
        raise _Unusable(f"its config.json has fewer layers than its weights, which also hold {_listed(layers)}.")
    return model


def _structure(config: Any, dtype: torch.dtype) -> Any:
    """The model that `_model` makes, on the meta device."""
    from transformers import AutoModelForCausalLM

    try:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, dtype=dtype, trust_remote_code=False)
    except Exception as error:  # a constructor may compute with its weights, which makes torch raise many kinds
        raise StructureError(f"{type(error).__name__}: {' '.join(str(error).split()):.{MAX_REASON_CHARS}}") from error
    for name, module in model.named_modules():
        # Neither parameter nor buffer: nobody could tell that it has to be received.
        if hidden := [key for key, value in vars(module).items() if isinstance(value, torch.Tensor) and value.is_meta]:
            raise StructureError(f"{type(module).__name__} ({name}) computes the tensor {hidden[0]} when it is made")
    return model.eval()  # as from_pretrained leaves it


@contextmanager
def _refusals_said_once() -> Iterator[None]:
    """Leave out transformers' table of weights that are missing or have other shapes: both are refused in one line."""

    def is_shown(record: logging.LogRecord) -> bool:
        message = record.getMessage()
        return "LOAD REPORT" not in message or not ("| MISSING" in message or "| MISMATCH" in message)

    logger = logging.getLogger("transformers.modeling_utils")
    logger.addFilter(is_shown)
    try:
        yield
    finally:
        logger.removeFilter(is_shown)


def _check_vocabulary(model: Any, tokenizer: Any) -> None:
    """Refuse a tokenizer whose tokens have no embedding: an index out of range, hours into a run."""
    embeddings = model.get_input_embeddings().weight.shape[0]
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    token = max(vocabulary, key=vocabulary.__getitem__, default="")
    if not vocabulary:
        raise _Unusable("its tokenizer has no tokens.")
    if vocabulary[token] >= embeddings:
        raise _Unusable(
            f"its tokenizer has tokens up to {vocabulary[token]} ({token!r}), its embeddings {embeddings} rows: the "
            "two are of different models, or the embeddings were not resized."
        )


def _check_adapter(folder: Path, *, is_quantized: bool) -> None:
    """Refuse what PEFT would act upon or read as a pickle, and kinds of adapters that do not stay one model."""
    from peft import PeftConfig

    settings = adapter_settings(folder)
    if settings.get("peft_type") != "LORA":
        raise _Unusable(
            f"its {ADAPTER_FILE} says peft_type={settings.get('peft_type')!r:.40}; LORA is what is trained."
        )
    for name, value in special_settings(PeftConfig.from_pretrained(str(folder))).items():
        if name not in _TRAINED and (is_quantized or name != "init_lora_weights" or value not in _EXACT):
            raise _Unusable(
                f"its {ADAPTER_FILE} says {name}={value!r:.60}, with which a copy of it that is saved, merged or a "
                "reference could be another model. Train plain LoRA; PiSSA's, CorDA's and LoRA-GA's weights become it "
                "by PEFT's save_pretrained(path_initial_model_for_weight_conversion=…)."
            )
    if not (folder / ADAPTER_WEIGHTS).is_file():
        raise _Unusable(_without_safetensors(folder, ADAPTER_WEIGHTS))


def _check_adapter_fits(model: Any, folder: Path) -> None:
    """Refuse an adapter of which a part would be left out, as one made for more layers."""
    from peft import get_peft_model_state_dict

    with safe_open(folder / ADAPTER_WEIGHTS, "pt") as weights:
        saved = {name for name in weights.keys() if "lora_" in name}  # noqa: SIM118 - it is no mapping
    if unused := sorted(saved - set(get_peft_model_state_dict(model, save_embedding_layers=False))):
        raise _Unusable(f"this model has no place for {_listed(unused)}.")


def _reason(what: str, error: Exception, location: str) -> str:
    """One line for a person."""
    text = " ".join(str(error).split())
    folder = Path(location)
    if "trust_remote_code" in text:
        return "it needs code that comes with it, which is never run. Take a model of a type that transformers has."
    if "ignore_mismatched_sizes" in text or "size mismatch" in text:
        return f"the shapes of its {what} are not those that the configuration asks for."
    if isinstance(error, SafetensorError):
        return f"{_damaged(folder)} is damaged or cut off ({text})."
    if "model.safetensors" in text and folder.is_dir():
        return _without_safetensors(folder, "model.safetensors")
    if "backend tokenizer" in text and folder.is_dir() and not (folder / "tokenizer.json").is_file():
        return "the folder has no tokenizer.json."
    if not isinstance(error, OSError | ValueError):  # whose texts are whole sentences
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return f"its {what}: {text if len(text) <= MAX_REASON_CHARS else f'{text[: MAX_REASON_CHARS - 1]}…'}"


def _damaged(folder: Path) -> str:
    for file in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(file, "pt"):
                continue
        except (SafetensorError, OSError):
            return file.name
    return "a file of weights"


def _without_safetensors(folder: Path, name: str) -> str:
    pickles = sorted(file.name for file in folder.iterdir() if file.suffix in (".bin", ".pt", ".pth"))
    if not pickles:
        return f"the folder has no {name}."
    return (
        f"its weights are a pickle ({pickles[0]}), which can run code and is never read. Convert them to safetensors "
        "where you trust them: model.save_pretrained."
    )


def _numberless(name: str) -> str:
    return re.sub(r"\d+", "#", name)


def _listed(names: list[str]) -> str:
    rest = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{names[0]}{rest}"
