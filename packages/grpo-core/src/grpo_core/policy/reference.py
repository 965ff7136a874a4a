"""A policy's frozen reference: the anchor of the KL penalty, or an opponent."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from torch.distributed.tensor import DTensor

from grpo_core.policy.first_rank import is_on_meta
from grpo_core.policy.parts import gathered_state, is_of_adapter
from grpo_sdk.errors import UserError

REFERENCE_DIR = "reference"
"""Folder of a run, or of a checkpoint where the reference moves, that holds it."""

MODEL_DIR = "model"
"""Folder in it with the weights of a fully trained model's reference, as `from_pretrained` reads them."""

_FACTS_FILE = "reference.json"
"""File that says what a stored reference is."""

_MODEL, _BASE, _ADAPTER = MODEL_DIR, "base", "reference"
"""Kinds of references; the last one is also the name of the adapter."""

_STARTS_AT_0 = {"lora_B", "lora_embedding_A"}
"""Factors of a LoRA adapter that are 0 until it is trained."""

_FACTORS = {"lora_A", "lora_embedding_B"} | _STARTS_AT_0
"""All factors of a LoRA adapter."""


def reference_folder(checkpoint: Path) -> Path:
    """Where a checkpoint's reference is stored: in it if the reference moves, else in the run's folder."""
    own = checkpoint / REFERENCE_DIR
    return own if own.exists() else checkpoint.resolve().parent.parent / REFERENCE_DIR


@dataclass(frozen=True, slots=True)
class Reference:
    """A model as it was at one moment, with no more memory than that takes.

    A fresh adapter needs no copy: the base with the adapter off is the starting policy. A loaded adapter is kept as a
    second, frozen adapter on the same base. A fully trained model is copied.

    Attributes:
        model: The model that it is a reference of, as it is now.
        kind: `base`, `reference` (the adapter's name) or `model`.
        frozen: Frozen copy of a fully trained model; None for the other kinds.
    """

    model: Any
    kind: str
    frozen: Any = None

    @classmethod
    def freeze(cls, model: Any, kind: str | None = None) -> Reference:
        """Keep a model as it is now.

        Args:
            model: The model.
            kind: Kind of its reference, where the model has no weights that show it.

        Raises:
            UserError: an adapter trains weights of its base.
        """
        if not _is_adapter(model):
            return cls(model, _MODEL, copy.deepcopy(model).eval().requires_grad_(False))
        weights = dict(model.named_parameters())
        active = model.active_adapter
        trained = (name for name, parameter in weights.items() if parameter.requires_grad)
        if shared := next((name for name in trained if not is_of_adapter(name, active)), None):
            raise UserError(
                f"the adapter trains a weight of the base, {shared}, so that the base is no reference: make it "
                "with bias='none', or train without a reference: trainer.beta=0."
            )
        if kind is None:
            kind = _BASE if _is_fresh(weights, active) else _ADAPTER
        if kind == _BASE:
            return cls(model, _BASE)
        with copied_as_it_is(model):
            model.add_adapter(_ADAPTER, copy.deepcopy(model.peft_config[active]))
        for name, parameter in model.named_parameters():
            if is_of_adapter(name, _ADAPTER):
                source = weights[_renamed(name, _ADAPTER, active)]
                if not source.is_meta:  # else the parameter is received
                    parameter.data.copy_(source.data)
                parameter.requires_grad_(False)
        return cls(model, _ADAPTER)

    @classmethod
    def load(cls, model: Any, folder: Path) -> Reference:
        """Read what `save` wrote, for a model that may have been trained since.

        Raises:
            UserError: the folder holds no reference, or one that does not fit the model.
        """
        try:
            kind = orjson.loads((folder / _FACTS_FILE).read_bytes())["kind"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{folder}: no stored reference policy there ({error}).") from None
        if (kind == _MODEL) == _is_adapter(model):
            raise UserError(
                f"{folder}: the stored reference is a {kind}, and this policy "
                f"{'trains an adapter' if _is_adapter(model) else 'is fully trained'}."
            )
        if kind == _MODEL:
            return cls(model, _MODEL, _with_weights(copy.deepcopy(model), folder).eval().requires_grad_(False))
        if kind != _ADAPTER:
            return cls(model, _BASE)
        if _ADAPTER not in model.peft_config:
            active = model.active_adapter
            options = {"is_trainable": False, "low_cpu_mem_usage": is_on_meta(model)}
            model.load_adapter(str(folder / _ADAPTER), _ADAPTER, **options)
            model.set_adapter(active)
        return cls(model, _ADAPTER)

    def move(self, share: float) -> None:
        """Move a copy of a fully trained model towards the model as it is now.

        Args:
            share: Share of the model's weights; the rest are its own.
        """
        assert self.frozen is not None, "refused before: an adapter's reference does not move"
        with torch.no_grad():
            for own, other in zip(self.frozen.parameters(), self.model.parameters(), strict=True):
                own.mul_(1.0 - share).add_(other.detach(), alpha=share)

    def into_adapter(self, name: str) -> None:
        """Make an adapter of the model, which is none of ours, equal to the reference; the base needs none."""
        if self.kind == _BASE:
            self.model.delete_adapter(name)  # then TRL's reference is the model without an adapter
            return
        weights = dict(self.model.named_parameters())
        for other in [each for each in weights if is_of_adapter(each, name)]:
            weights[other].data.copy_(weights[_renamed(other, name, _ADAPTER)].data)

    def gathered_weights(self) -> dict[str, Tensor] | None:
        """The weights for `save` where the model is sharded, on the first rank; every rank takes part."""
        if not any(isinstance(parameter, DTensor) for parameter in self.model.parameters()):
            return None
        if self.kind == _ADAPTER:
            return gathered_state(self.model, lambda name: is_of_adapter(name, _ADAPTER))
        return {} if self.frozen is None else gathered_state(self.frozen)

    def save(self, folder: Path, base: str, weights: Mapping[str, Tensor] | None = None) -> None:
        """Write `reference.json`, which says what the reference is, beside its weights where it has any.

        Args:
            folder: Folder that receives the files.
            base: Name of the model that training started from.
            weights: Result of `gathered_weights`.
        """
        options = {} if weights is None else {"state_dict": dict(weights)}
        folder.mkdir(parents=True, exist_ok=True)
        if self.frozen is not None:
            self.frozen.save_pretrained(folder / _MODEL, **options)
        elif self.kind == _ADAPTER:
            self.model.save_pretrained(folder, selected_adapters=[_ADAPTER], **options)
        facts = {"kind": self.kind, "base": base}
        (folder / _FACTS_FILE).write_bytes(orjson.dumps(facts, option=orjson.OPT_APPEND_NEWLINE))

    @contextmanager
    def active(self) -> Iterator[Any]:
        """Yield the reference as a model: a frozen copy, or the model itself with another adapter or none."""
        model = self.model
        if self.frozen is not None:
            yield self.frozen
        elif self.kind == _BASE:
            with model.disable_adapter():
                yield model
        else:
            active = model.active_adapter
            trainable = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
            model.set_adapter(_ADAPTER)
            try:
                yield model
            finally:
                model.set_adapter(active)
                for name, parameter in model.named_parameters():
                    parameter.requires_grad_(name in trainable)  # set_adapter changes what is trained


def _is_adapter(model: Any) -> bool:
    return hasattr(model, "peft_config")


@contextmanager
def copied_as_it_is(model: Any) -> Iterator[None]:
    """The context in which a copy of the adapter may be added: initialized anew, PiSSA's would change the base."""
    config = model.peft_config[model.active_adapter]
    start, config.init_lora_weights = config.init_lora_weights, True
    try:
        yield
    finally:
        config.init_lora_weights = start


def _is_fresh(weights: Mapping[str, Tensor], adapter: str) -> bool:
    """Whether an adapter changes nothing yet: PEFT starts one factor of each product at 0, of embeddings the other."""
    own = {name: set(name.split(".")) for name in weights if is_of_adapter(name, adapter)}
    zero = [weights[name] for name, parts in own.items() if _STARTS_AT_0 & parts]
    # Of what is no factor (magnitudes, whole modules, tokens) nothing shows that it is as it was.
    return bool(zero) and not any(map(bool, map(Tensor.any, zero))) and all(_FACTORS & each for each in own.values())


def _renamed(name: str, adapter: str, other: str) -> str:
    """The name of another adapter's parameter beside an adapter's."""
    return ".".join(other if part == adapter else part for part in name.split("."))


def _with_weights(model: Any, folder: Path) -> Any:
    """Load the weights of a stored reference into a copy of the policy's model, unless that receives them."""
    if is_on_meta(model):
        return model
    weights: dict[str, Tensor] = {}
    try:
        for file in sorted((folder / _MODEL).glob("*.safetensors")):
            weights |= load_file(file)
        missing, unexpected = model.load_state_dict(weights, strict=False)
    except (SafetensorError, OSError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{folder}: the stored reference cannot be loaded: {reason:.300}") from error
    tied = set(getattr(model, "_tied_weights_keys", None) or ())
    if unexpected or set(missing) - tied:
        raise UserError(f"{folder}: the stored reference is of another model.")
    return model
