"""Loading a policy: device, precision, weights, adapter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch

from grpo_core.algorithms.cpu_matmul import use_onednn
from grpo_core.config import LoraConfig
from grpo_core.policy.device import EMULATED, choose_device, choose_precision
from grpo_core.policy.policy import Policy
from grpo_core.policy.pretrained import adapter_folder, load_adapter, load_pretrained
from grpo_core.policy.quantization import Quantization, dequantized, keep_as_quantized, plain_model, quiet_bitsandbytes
from grpo_core.policy.threads import choose_threads
from grpo_sdk.callbacks import ResolvedDefault
from grpo_sdk.errors import UserError, first_line
from grpo_sdk.hub.cache import why_from_cache
from grpo_sdk.plugins.host import PluginHost
from grpo_sdk.plugins.models import ModelSource, adapter_base, model_source

WeightsPlace = Literal["device", "host", "meta"]


def load_policy(
    name: str,
    *,
    adapter: str | None = None,
    lora: LoraConfig | None = None,
    device: str | tuple[torch.device, str] = "auto",
    precision: str = "auto",
    host: PluginHost | None = None,
    weights: WeightsPlace = "device",
    dequantizes: bool = False,
) -> Policy:
    """Load a model, and an adapter onto it.

    Args:
        name: Embedded name, local folder, GGUF file or hub id.
        adapter: Folder or hub id of a PEFT adapter to start from.
        lora: Make a fresh adapter, if enabled and none is given; quantize the base, if it says so.
        device: `auto`, `cpu`, `cuda`, `cuda:N` or `mps`; or one that is chosen already, with the reason.
        precision: `auto` or a dtype's name.
        host: Where embedded models are looked up.
        weights: Where they go: `host` leaves them in host memory, for `Policy.shard` to move; `meta` does not read
            them, for `Policy.shard` to receive.
        dequantizes: Give a quantized base its plain form again, for a merge.

    Raises:
        StructureError: the model cannot be made without its weights.
        UserError: no such model, adapter or device; says what was looked for.
    """
    source = model_source(name, host)
    below = _base_of(source, host) if source.kind == "adapter" else source
    where, device_why = choose_device(device) if isinstance(device, str) else device
    dtype, autocast, precision_why = choose_precision(precision, where)
    given_as = f"--model {name}" if adapter is None else f"--adapter {adapter}"
    saved = source.location if adapter is None and below is not source else adapter
    quantization = Quantization.of(lora, saved)
    folder = None if saved is None else adapter_folder(saved, given_as, is_quantized=quantization is not None)
    quantized = {} if quantization is None else quantization.loading(autocast or dtype, where)
    model, tokenizer = _load(below, dtype, quantized, has_weights=weights != "meta")
    if quantization is not None:
        keep_as_quantized(model)
    if dequantizes and quantization is not None:
        model, quantization = dequantized(model), None
    if threads_why := choose_threads(_parameters(model), where):
        device_why += f"; {threads_why}"
    reason = why_from_cache(below.location) if below.kind == "hub" else ""
    why = f"{source.why}, from the cache: {reason}" if reason else source.why
    is_worse = autocast is torch.float16 or EMULATED in precision_why
    choices = [
        ResolvedDefault(
            "model", f"{name} ({source.kind}, {_parameters(model) / 1e6:.1f} M parameters)", why, not reason
        ),
        ResolvedDefault("device", _describe(where), device_why, is_ordinary=True),
        ResolvedDefault(
            "precision", str(autocast or dtype).removeprefix("torch."), precision_why, is_ordinary=not is_worse
        ),
    ]
    if quantization is not None:
        choices.append(ResolvedDefault("base", f"4 bits ({quantization}), frozen", "lora.quantization"))
    model, adapter_choice = _with_adapter(model, folder, given_as, lora, source, below)
    choices += [adapter_choice] if adapter_choice else []
    if where.type == "cpu":
        use_onednn(model)
    if weights == "device":
        model = model.to(where)
    return Policy(model, tokenizer, source, where, autocast, choices, quantization=quantization)


def _base_of(adapter: ModelSource, host: PluginHost | None) -> ModelSource:
    base = model_source(adapter_base(adapter.location), host)
    if base.kind == "adapter":
        raise UserError(f"--model {adapter.name} is {adapter.why}, which is an adapter itself: merge that one first.")
    return base


def _load(
    source: ModelSource, dtype: torch.dtype, quantized: Mapping[str, Any], *, has_weights: bool
) -> tuple[Any, Any]:
    if source.kind == "gguf":
        if quantized:
            raise UserError(
                f"--model {source.name}: a GGUF file is quantized in its own way, which lora.quantization cannot add "
                "to. Give the model that it was made of, or leave lora.quantization out."
            )
        try:
            import grpo_core.policy.gguf_file  # noqa: F401 - needs the package gguf and a transformers that reads it
        except ImportError:
            raise UserError("--model …gguf needs the package gguf: pip install 'grpo-core[gguf]'.") from None
    model, tokenizer = load_pretrained(source, dtype, quantized, has_weights=has_weights)
    if source.kind == "gguf" and has_weights:
        model = plain_model(model, model.state_dict())
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return model, tokenizer


def _with_adapter(
    model: Any, folder: Path | None, given_as: str, lora: LoraConfig | None, source: ModelSource, base: ModelSource
) -> tuple[Any, ResolvedDefault | None]:
    """Put the adapter on a model that is to be trained: a saved one, else a fresh one where LoRA is enabled."""
    quiet_bitsandbytes()
    if folder is not None:
        option, _, name = given_as.partition(" ")
        replaced = f", in place of the one in {source.name}" if source.kind == "adapter" else ""
        why = f"training starts from it{replaced if option == '--adapter' else f'; its base is {base.name}'}"
        return load_adapter(model, folder, given_as), ResolvedDefault("adapter", name, why)
    if lora is None or not lora.enabled:
        return model, None
    model = _with_fresh_lora(model, lora)
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    return model, ResolvedDefault("trained", f"LoRA r {lora.r}, {trained / 1e6:.2f} M parameters", "lora.enabled")


def _with_fresh_lora(model: Any, lora: LoraConfig) -> Any:
    from peft import LoraConfig as PeftLoraConfig
    from peft import get_peft_model

    targets: str | Sequence[str] = lora.target_modules
    if isinstance(targets, str) and targets != "all-linear":
        targets = [target.strip() for target in targets.split(",")]
    try:
        return get_peft_model(
            model,
            PeftLoraConfig(
                task_type="CAUSAL_LM",
                r=lora.r,
                lora_alpha=lora.alpha,
                lora_dropout=lora.dropout,
                target_modules=targets if isinstance(targets, str) else list(targets),
            ),
        )
    except ValueError as error:  # target_modules that the model does not have
        raise UserError(f"lora.target_modules={lora.target_modules}: {first_line(error)}") from None


def _parameters(model: Any) -> int:
    return int(model.num_parameters())  # which knows that a byte holds two weights of 4 bits


def _describe(device: torch.device) -> str:
    if device.type == "cuda":
        return f"{device} ({torch.cuda.get_device_name(device)})"
    if device.type == "cpu":
        threads = torch.get_num_threads()
        return f"{device}, {threads} thread{'s' if threads > 1 else ''}"
    return str(device)
