"""The model whose weights a server gets: whole or in shards, with an adapter or without, as files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from grpo_core.algorithms.causal_lm import causal_lm, special_settings
from grpo_sdk.errors import UserError

MAX_ADAPTER_RANK = 512


Gather = Callable[..., dict[str, Tensor]]
"""Makes the weights of a module in shards whole, on the first rank, of those chosen by name; every rank takes part."""


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """A model in training.

    Attributes:
        model: A transformers or PEFT model.
        tokenizer: Its tokenizer.
        gather: Makes its weights whole, where ranks share them; None where each has all.
    """

    model: Any
    tokenizer: Any
    gather: Gather | None = None

    @property
    def is_adapter(self) -> bool:
        """Whether only an adapter is trained."""
        return hasattr(self.model, "peft_config")

    @property
    def inner(self) -> Any:
        """The transformers model."""
        return causal_lm(self.model).model

    @property
    def device(self) -> torch.device:
        """Device that it runs on."""
        return causal_lm(self.model).device

    @property
    def is_tied(self) -> bool:
        """Whether its output layer is its embeddings."""
        return bool(self.inner.config.get_text_config(decoder=True).tie_word_embeddings)

    @property
    def nbytes(self) -> int:
        """Size of the weights."""
        return sum(parameter.nbytes for parameter in self.model.parameters())

    def trained_state(self) -> Mapping[str, Tensor] | None:
        """The weights that are trained; None where the model has them. Every rank takes part."""
        if self.gather is None:
            return None
        adapter = self.model.active_adapter if self.is_adapter else None
        return self.gather(self.model, lambda name: adapter is None or adapter in name.split("."))

    def base_state(self) -> Mapping[str, Tensor] | None:
        """The weights without an adapter, under their own names; None as they are. Every rank takes part."""
        if self.gather is None and not self.is_adapter:
            return None
        state = self.inner.state_dict() if self.gather is None else self.gather(self.inner)
        return {name.replace(".base_layer.", "."): tensor for name, tensor in state.items() if ".lora_" not in name}

    def save_adapter(self, folder: Path, state: Mapping[str, Tensor] | None) -> Path:
        """Write the adapter; returns the folder that holds it."""
        active, options = self.model.active_adapter, {} if state is None else {"state_dict": dict(state)}
        self.model.save_pretrained(folder, selected_adapters=[active], **options)
        return folder if active == "default" else folder / active

    def save(self, folder: Path, state: Mapping[str, Tensor] | None, *, unties: bool = False) -> None:
        """Write the model as a server reads it.

        Args:
            folder: Receives it.
            state: Its weights; None as they are.
            unties: Whether a tied output layer is written by itself.
        """
        model = self.inner
        if not (unties and self.is_tied):
            model.save_pretrained(folder, **({} if state is None else {"state_dict": dict(state)}))
            return
        weights = dict(model.state_dict() if state is None else state)
        (head,) = (name for name, module in model.named_modules() if module is model.get_output_embeddings())
        weights[f"{head}.weight"] = weights[f"{head}.weight"].clone()
        model.save_pretrained(folder, state_dict=weights)
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"tie_word_embeddings": False}))

    @property
    def adapter_rank(self) -> int:
        """Rank of the adapter."""
        return int(self.model.peft_config[self.model.active_adapter].r)

    def check_adapter(self) -> None:
        """Check that vLLM can apply the adapter, if there is one.

        Raises:
            UserError: it is another kind than plain LoRA, or larger than vLLM takes.
        """
        if not self.is_adapter:
            return
        special = special_settings(self.model.peft_config[self.model.active_adapter])
        found = [f"{name}={value}" for name, value in special.items()]
        if self.adapter_rank > MAX_ADAPTER_RANK:
            found.append(f"rank {self.adapter_rank}, above {MAX_ADAPTER_RANK}")
        if self.is_tied and hasattr(self.inner.get_input_embeddings(), "base_layer"):
            found.append("adapter of embeddings that are the output layer, too")
        if found:
            raise UserError(
                f"engine.name=vllm cannot apply this adapter: its server has no {' and no '.join(found)}. Train "
                "plain LoRA, or set engine.name=native."
            )
