"""The files of a published model: weights, tokenizer, generation settings."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import orjson

from grpo_core.checkpoints import read_json
from grpo_core.errors import UserError
from grpo_core.plugins.models import ADAPTER_FILE
from grpo_core.publish.source import Source

Form = Literal["full", "merged", "adapter"]
"""A fully trained model; an adapter merged into its base; an adapter alone."""

GENERATION_FILE = "generation_config.json"
ADAPTER_FILES = (ADAPTER_FILE, "adapter_model.safetensors")


def choose_form(source: Source, merge: bool | None) -> Form:
    """What is written: adapters are merged unless they are to be kept, because a merged model loads everywhere.

    Raises:
        UserError: a kept adapter was asked for, and there is none or nobody could load it.
    """
    if not source.is_adapter:
        if merge is False:
            raise UserError(
                f"--keep-adapter: {source.checkpoint} is a fully trained model; there is no adapter to keep."
            )
        return "full"
    if merge is not False:
        return "merged"
    if source.base is not None and source.base.kind == "gguf":
        raise UserError(f"--keep-adapter: the base {source.base_name} is a GGUF file, onto which no adapter is loaded.")
    return "adapter"


def write_model(source: Source, folder: Path, form: Form) -> None:
    """Write weights, tokenizer and generation settings; everything in the checkpoint but the value head.

    Raises:
        UserError: the base of an adapter that is to be merged is not there.
    """
    from grpo_core.policy.quantization import QUANTIZATION_FILE
    from grpo_core.policy.value_head import VALUE_HEAD_FILE

    left_out = {VALUE_HEAD_FILE, "README.md", *((*ADAPTER_FILES, QUANTIZATION_FILE) if form == "merged" else ())}
    shutil.copytree(source.model_dir, folder, dirs_exist_ok=True, ignore=lambda _, names: left_out.intersection(names))
    if form == "merged":
        _merge(source, folder)
    elif form == "adapter":
        _name_base(source, folder / ADAPTER_FILE)
    _write_generation_config(source, folder)


def _merge(source: Source, folder: Path) -> None:
    """Add the adapter's product to the base's weights, in the precision in which it was trained: float32 or float64.

    An adapter on a base in 4 bits learnt what corrects that base, so it is added to the dequantized one.
    """
    from grpo_core.policy.load import load_policy

    precision = "float64" if source.config.precision == "float64" else "float32"
    policy = load_policy(
        source.base_name,
        adapter=str(source.model_dir.absolute()),
        device="cpu",
        precision=precision,
        dequantizes=True,
    )
    try:
        merged = policy.model.merge_and_unload(safe_merge=True)
    except ValueError as error:  # what PEFT raises for weights that are not finite
        raise UserError(f"{source.checkpoint}: the adapter cannot be merged: {str(error).splitlines()[0]}") from None
    merged.save_pretrained(folder)


def _name_base(source: Source, path: Path) -> None:
    """Name the base as others find it: PEFT wrote where it lay on this machine."""
    settings = read_json(path, "the adapter's configuration")
    if source.base is None or source.base.kind != "folder":
        settings["base_model_name_or_path"] = source.base_name
    path.write_bytes(orjson.dumps(settings, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def _write_generation_config(source: Source, folder: Path) -> None:
    trainer = source.config.trainer
    settings = {
        **_generation_config(source, folder / GENERATION_FILE),
        "do_sample": True,
        "temperature": trainer.temperature,
        "top_p": trainer.top_p,
        "top_k": trainer.top_k,  # 0 keeps all; left out, transformers would take 50
        "min_p": trainer.min_p,
        "max_new_tokens": trainer.max_completion_length,
    }
    # Of a file with this mark, transformers takes the model's own settings in place of these.
    settings.pop("_from_model_config", None)
    if not trainer.min_p:
        del settings["min_p"]
    text = orjson.dumps(settings, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)
    (folder / GENERATION_FILE).write_bytes(text)


def _generation_config(source: Source, written: Path) -> Mapping[str, Any]:
    """The model's own settings (which tokens end a text), or those of an adapter's base if that is on this machine."""
    if written.is_file():
        return read_json(written, "the model's generation settings")
    if source.base is None or source.base.kind == "gguf":
        return {}
    there: str | Path | None = Path(source.base.location) / GENERATION_FILE
    if source.base.kind == "hub":
        from huggingface_hub import try_to_load_from_cache

        cached = try_to_load_from_cache(source.base.location, GENERATION_FILE)
        there = cached if isinstance(cached, str) else None
    if there is None or not Path(there).is_file():
        return {}
    return read_json(Path(there).resolve(), "the base's generation settings")  # in the cache it is a link
