"""A decoder-only `transformers` model taken apart: the body that makes hidden states, the head that makes logits.

Only so can logits be computed where they are needed, a few positions at a time, instead of [B, T, V].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from inspect import signature
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from transformers import Cache, PreTrainedModel

from grpo_sdk.errors import UserError

HEAD_TOLERANCE = 0.02
"""Relative difference allowed between our logits and the model's own: bfloat16 rounds to 2^-8, a factor is larger."""


_PLAIN = {
    "base_model_name_or_path", "inference_mode", "task_type", "peft_version", "revision", "auto_mapping", "r",
    "lora_alpha", "lora_dropout", "target_modules", "exclude_modules", "layers_to_transform", "layers_pattern",
    "use_rslora", "fan_in_fan_out", "eva_config",
}  # fmt: skip
"""Settings of a PEFT adapter that leave it plain LoRA, whatever their values."""

_STARTS = ("gaussian", "orthogonal", "eva", "mica")
"""Initializations that leave the base's weights as they are."""


def special_settings(config: Any) -> dict[str, Any]:
    """The settings, by name, by which a PEFT adapter is another kind than plain LoRA."""
    plain = type(config)().to_dict()
    set_ = {name: value for name, value in config.to_dict().items() if value and value != plain.get(name)}
    starts = {"init_lora_weights"} if set_.get("init_lora_weights") in _STARTS else set()
    return {name: value for name, value in set_.items() if name not in _PLAIN | starts}


@lru_cache
def _cache_parameter(forward: Callable[..., Any]) -> str:
    """Name of the parameter that takes the cache: `cache` in newer versions of transformers."""
    return "cache" if "cache" in signature(forward).parameters else "past_key_values"


@dataclass(frozen=True, slots=True)
class CausalLM:
    """The parts of a causal language model: logits = cap·tanh(scale·(h Wᵀ + b) / cap), without cap if there is none.

    Attributes:
        model: The `transformers` model, with adapters in place but without PEFT's wrapper.
        body: Maps token ids to hidden states [B, L, D].
        head: Maps hidden states to raw logits [*, V].
        scale: Factor of the logits (Cohere, Granite).
        softcap: Cap of the logits (Gemma).
    """

    model: PreTrainedModel
    body: nn.Module
    head: nn.Module
    scale: float = 1.0
    softcap: float | None = None

    @property
    def device(self) -> torch.device:
        """Device that it runs on, which is not where its weights are if they wait in host memory."""
        weight = next(self.body.parameters())
        if isinstance(weight, DTensor) and weight.device_mesh.device_type != weight.device.type:
            return torch.device(weight.device_mesh.device_type, torch.cuda.current_device())
        return weight.device

    def hidden(self, input_ids: Tensor, *, cache: Cache | None = None, **kwargs: Any) -> Tensor:
        """Run the body: [B, L] -> [B, L, D]; keys and values go to the cache, if there is one."""
        if cache is not None:
            kwargs |= {_cache_parameter(type(self.body).forward): cache, "use_cache": True}
        hidden: Tensor = self.body(input_ids=input_ids, **kwargs)[0]
        return hidden

    @property
    def is_checkpointed(self) -> bool:
        """Whether a module computes its activations again in the backward pass."""
        return any(getattr(module, "gradient_checkpointing", False) for module in self.model.modules())

    def logits(self, hidden: Tensor) -> Tensor:
        """Apply the head: [*, D] -> [*, V]."""
        logits: Tensor = self.head(hidden)
        if self.scale != 1.0:
            logits = logits * self.scale
        return logits if self.softcap is None else torch.tanh(logits / self.softcap) * self.softcap

    def head_weight(self) -> tuple[Tensor, Tensor | None]:
        """Return the head's weight [V, D] and bias [V].

        Raises:
            UserError: the head carries an adapter, whose part of the logits the weight alone does not show.
        """
        if hasattr(self.head, "base_layer"):  # every PEFT tuner layer has it; peft need not be imported to see it
            raise UserError(
                f"the output embedding is wrapped by an adapter ({type(self.head).__name__}): log-probs are computed "
                "from its weight. Leave lm_head out of target_modules, or merge the adapter into the model first."
            )
        weight, bias = self.head.weight, getattr(self.head, "bias", None)
        assert isinstance(weight, Tensor), "an output embedding is a linear map"
        return weight, bias


_checked: WeakSet[nn.Module] = WeakSet()


def causal_lm(model: nn.Module) -> CausalLM:
    """Take `model` apart, and check once per model that the parts make the logits the whole makes.

    Args:
        model: A decoder-only `transformers` model, or a PEFT model around one.

    Raises:
        UserError: it is something else, or its logits are made in a way that is not known here.
    """
    base = _without_peft(model)
    config = base.config.get_text_config(decoder=True)
    head = base.get_output_embeddings()
    if head is None or config.is_encoder_decoder:
        raise UserError(
            f"{type(base).__name__} is not a decoder-only language model with a head; load it as a causal LM."
        )
    parts = CausalLM(
        model=base,
        body=base.base_model,
        head=head,
        scale=_scale(base),
        softcap=getattr(config, "final_logit_softcapping", None),
    )
    if base not in _checked:
        if parts.device.type != "meta":  # else it receives its weights from a rank that has checked them
            _check(parts)
        _checked.add(base)
    return parts


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Turn dropout off and gradients too within the block; every module's own training flag is restored after it."""
    training = [module for module in model.modules() if module.training]
    try:
        for module in training:
            module.training = False
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True


def _without_peft(model: nn.Module) -> PreTrainedModel:
    if isinstance(model, PreTrainedModel):
        return model
    wrapper: Any = model  # PEFT's class is known by its methods, so that peft need not be imported
    inner = wrapper.get_base_model() if hasattr(model, "get_base_model") else None
    if not isinstance(inner, PreTrainedModel):
        raise UserError(
            f"a {type(model).__name__} is neither a transformers model nor a PEFT model around one; "
            "unwrap it first (model.module under DistributedDataParallel)."
        )
    if wrapper.active_peft_config.is_prompt_learning:
        raise UserError(
            f"{wrapper.active_peft_config.peft_type} adds virtual tokens to every prompt, which neither the native "
            "engine nor the log-probs see. Use LoRA or full fine-tuning."
        )
    return inner


def _scale(model: PreTrainedModel) -> float:
    """Return the factor on the logits: Cohere multiplies by `logit_scale`, Granite divides by `logits_scaling`."""
    config = model.config.get_text_config(decoder=True)
    multiplier = float(getattr(model, "logit_scale", None) or 1.0)
    return multiplier / float(getattr(config, "logits_scaling", None) or 1.0)


def _check(parts: CausalLM) -> None:
    ids = torch.tensor([[0, 1]], device=parts.device)
    with evaluating(parts.model):
        expected = parts.model(input_ids=ids, use_cache=False).logits.float()
        logits = parts.logits(parts.hidden(ids, use_cache=False)).float()
    difference = float((logits - expected).abs().max())
    if difference > HEAD_TOLERANCE * float(expected.abs().max()):
        raise UserError(
            f"{type(parts.model).__name__} does more to its logits than apply its output embedding, a scale and a soft "
            f"cap: they differ by {difference:.3g}. Its log-probs would be wrong, so it is refused."
        )
