"""The model being trained or sampled from, and its frozen reference."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from grpo_core.algorithms.packing import Pack, packed_logprobs
from grpo_core.callbacks import Choice
from grpo_core.policy.source import ModelSource

REFERENCE_ADAPTER = "reference"
"""Name of the frozen copy of a starting adapter."""


@dataclass(slots=True)
class Policy:
    """A causal language model with its tokenizer, ready to be sampled from and trained.

    Attributes:
        model: A transformers or PEFT model.
        tokenizer: Its tokenizer, with a pad token.
        source: Where it came from.
        device: Where its weights are.
        autocast: The dtype of mixed precision, or None.
        choices: What was chosen while loading, and why.
    """

    model: Any
    tokenizer: Any
    source: ModelSource
    device: torch.device
    autocast: torch.dtype | None
    choices: list[Choice] = field(default_factory=list)
    _reference: Any = None

    @property
    def is_adapter(self) -> bool:
        """Whether only an adapter is trained."""
        return hasattr(self.model, "peft_config")

    @property
    def max_context(self) -> int | None:
        """Positions that the model has, if it is bounded."""
        limit = getattr(self.model.config, "max_position_embeddings", None)
        return int(limit) if limit else None

    @property
    def wide(self) -> torch.dtype:
        """The dtype of per-token sums: float64 where the device has it."""
        return torch.float32 if self.device.type == "mps" else torch.float64

    def parameters(self) -> list[torch.nn.Parameter]:
        """The parameters that are trained."""
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad]

    def precision(self) -> contextlib.AbstractContextManager[Any]:
        """The context in which the model runs."""
        if self.autocast is None:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=self.autocast)

    def logprobs(
        self,
        input_ids: Tensor,
        prompt_lens: Tensor,
        completion_lens: Tensor,
        packs: Sequence[Pack],
        *,
        temperature: float,
    ) -> Tensor:
        """Log-probabilities [B, T] of the completions' tokens at the sampling temperature; see `packed_logprobs`."""
        with self.precision():
            return packed_logprobs(self.model, input_ids, prompt_lens, completion_lens, packs, temperature=temperature)

    def freeze_reference(self) -> None:
        """Keep the policy as it is now as the reference: the anchor of the KL penalty, or a frozen opponent.

        A fresh adapter needs no copy (the base with the adapter off is the starting policy); a loaded adapter is kept
        as a second, frozen adapter on the same base; a fully trained model is copied.
        """
        if self._reference is not None:
            return
        if not self.is_adapter:
            self._reference = copy.deepcopy(self.model).eval().requires_grad_(False)
        elif self._adapter_is_fresh():
            self._reference = "base"
        else:
            active = self.model.active_adapter
            self.model.add_adapter(REFERENCE_ADAPTER, copy.deepcopy(self.model.peft_config[active]))
            weights = dict(self.model.named_parameters())
            for name, parameter in weights.items():
                if f".{REFERENCE_ADAPTER}." in name:
                    parameter.data.copy_(weights[name.replace(f".{REFERENCE_ADAPTER}.", f".{active}.")].data)
                    parameter.requires_grad_(False)
            self._reference = REFERENCE_ADAPTER

    @contextmanager
    def reference(self) -> Iterator[Policy]:
        """The reference policy, for as long as the context lasts; gradients do not flow."""
        assert self._reference is not None, "freeze_reference() comes first"
        with torch.no_grad():
            if self._reference == "base":
                with self.model.disable_adapter():
                    yield self
            elif self._reference == REFERENCE_ADAPTER:
                active = self.model.active_adapter
                trainable = {name for name, parameter in self.model.named_parameters() if parameter.requires_grad}
                self.model.set_adapter(REFERENCE_ADAPTER)
                try:
                    yield self
                finally:
                    self.model.set_adapter(active)
                    for name, parameter in self.model.named_parameters():
                        parameter.requires_grad_(name in trainable)  # set_adapter changes what is trained
            else:
                yield Policy(self._reference, self.tokenizer, self.source, self.device, self.autocast)

    def _adapter_is_fresh(self) -> bool:
        return all(not bool(parameter.any()) for name, parameter in self.model.named_parameters() if ".lora_B." in name)

    def save(self, folder: Path) -> None:
        """Write the model (or the adapter) as safetensors, with its tokenizer."""
        adapters = {"selected_adapters": [self.model.active_adapter]} if self.is_adapter else {}
        self.model.save_pretrained(folder, **adapters)
        self.tokenizer.save_pretrained(folder)
