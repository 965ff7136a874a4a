"""The files of a published model: weights, tokenizer, generation settings."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any, Literal

import orjson

from grpo_core.checkpoints import read_json
from grpo_core.publish.source import Source
from grpo_sdk.errors import UserError, first_line
from grpo_sdk.plugins.models import ADAPTER_FILE

Form = Literal["full", "merged", "adapter"]
"""A fully trained model; an adapter merged into its base; an adapter alone."""

GENERATION_FILE = "generation_config.json"
ADAPTER_FILES = (ADAPTER_FILE, "adapter_model.safetensors")


def choose_form(source: Source, merge: bool | None) -> Form:
    """Choose the form of the published model. Adapters are merged by default, because a merged model loads everywhere.

    Raises:
        UserError: the adapter is to be kept, but there is none or it could not be loaded.
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


def write_model(source: Source, folder: Path, form: Form) -> str:
    """Write weights, tokenizer and generation settings: everything in the checkpoint except the value head.

    Returns:
        How an adapter's files, loaded again, compare with the checkpoint; empty for a fully trained model, a copy.

    Raises:
        UserError: the base of an adapter that is to be merged does not exist, or what was written is another model.
    """
    from grpo_core.policy.quantization import QUANTIZATION_FILE
    from grpo_core.policy.value_head import VALUE_HEAD_FILE

    left_out = {VALUE_HEAD_FILE, "README.md", *((*ADAPTER_FILES, QUANTIZATION_FILE) if form == "merged" else ())}
    shutil.copytree(source.model_dir, folder, dirs_exist_ok=True, ignore=lambda _, names: left_out.intersection(names))
    compared = "" if form == "full" else _write_adapter(source, folder, form)
    _write_generation_config(source, folder)
    return compared


def _write_adapter(source: Source, folder: Path, form: Form) -> str:
    """Write the adapter, merged or alone, and compare what was written, loaded again, with the checkpoint.

    An adapter trained on a base in 4 bits corrects the quantized weights, so it is added to the dequantized base.
    """
    from grpo_core.policy.answers import answers_of, check_answers
    from grpo_core.policy.load import load_policy

    precision = "float64" if source.config.precision == "float64" else "float32"  # in which it was trained
    load = partial(load_policy, device="cpu", precision=precision)
    trained = str(source.model_dir.absolute())
    if form == "adapter":
        _name_base(source, folder / ADAPTER_FILE)
        if source.base is None:
            return "with nothing: its base is not here"
    policy = load(source.base_name, adapter=trained)
    answers = answers_of(policy.model)
    if form == "merged":
        if policy.quantization is not None:
            policy = load(source.base_name, adapter=trained, dequantizes=True)
        try:
            _merged(policy.model).save_pretrained(folder)
        except ValueError as error:  # PEFT raises it for weights that are not finite
            reason = first_line(error)
            raise UserError(f"{source.checkpoint}: the adapter cannot be merged: {reason}") from None
    del policy  # there may be no room for two
    again = load(str(folder)) if form == "merged" else load(source.base_name, adapter=str(folder.absolute()))
    other = "alone: --keep-adapter" if form == "merged" else "merged: --merge"
    agreed = check_answers(answers, again.model, "what would be published", f"Publish it {other}")
    return f"with the trained model: {agreed}"


def _merged(model: Any) -> Any:
    """A model with its adapter merged in; embeddings and output layer are two weights where the adapter made them two.

    PEFT (0.21) adds the adapter of one of them to both.
    """
    from torch.nn import Parameter

    base = model.get_base_model()
    config, head = base.config.get_text_config(decoder=True), base.get_output_embeddings()
    was_tied, config.tie_word_embeddings = config.tie_word_embeddings, False
    if head.weight is base.get_input_embeddings().weight:
        head.weight = Parameter(head.weight.detach().clone())
    merged = model.merge_and_unload(safe_merge=True)
    head, embeddings = merged.get_output_embeddings(), merged.get_input_embeddings()
    if was_tied and head.weight.equal(embeddings.weight):
        head.weight, config.tie_word_embeddings = embeddings.weight, True
    return merged


def _name_base(source: Source, path: Path) -> None:
    """Replace the base's location on this machine, which PEFT wrote, by its public name."""
    settings = read_json(path, "the adapter's configuration")
    if source.base is None or source.base.kind != "folder":
        settings["base_model_name_or_path"] = source.base_name
    path.write_bytes(orjson.dumps(settings, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def _write_generation_config(source: Source, folder: Path) -> None:
    trainer = source.config.trainer
    written = folder / GENERATION_FILE  # the model's own settings, its end-of-text tokens; an adapter has its base's
    own = written if written.is_file() else source.base_file(GENERATION_FILE)
    settings = {
        **({} if own is None else read_json(own.resolve(), "the model's generation settings")),
        "do_sample": True,
        "temperature": trainer.temperature,
        "top_p": trainer.top_p,
        "top_k": trainer.top_k,  # 0 keeps all; left out, transformers would take 50
        "min_p": trainer.min_p,
        "max_new_tokens": trainer.max_completion_length,
    }
    # In a file with this mark, transformers uses the model's own settings instead of these.
    settings.pop("_from_model_config", None)
    if not trainer.min_p:
        del settings["min_p"]
    text = orjson.dumps(settings, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)
    written.write_bytes(text)
