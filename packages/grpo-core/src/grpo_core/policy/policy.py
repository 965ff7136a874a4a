"""The model being trained or sampled from, and its frozen reference."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from grpo_core.algorithms.hidden_states import CompletionStates
from grpo_core.algorithms.packing import Pack, packed_states
from grpo_core.callbacks import ResolvedDefault
from grpo_core.errors import UserError
from grpo_core.plugins.models import ModelSource
from grpo_core.policy.parts import gathered_state
from grpo_core.policy.quantization import Quantization
from grpo_core.policy.sharding import Shards
from grpo_core.policy.value_head import VALUE_HEAD_FILE, ValueHead

REFERENCE_ADAPTER = "reference"
"""Name of the frozen copy of a starting adapter."""

REFERENCE_DIR = "reference"
"""Where a run keeps its reference."""

REFERENCE_FILE = "reference.json"
"""What a stored reference is."""


@dataclass(frozen=True, slots=True)
class Weights:
    """A sharded policy's weights, whole, as `Policy.save` writes them; empty on every rank but the first.

    Attributes:
        model: Of the model, or of the adapter that is trained.
        value_head: Of the value head.
    """

    model: Mapping[str, Tensor]
    value_head: Mapping[str, Tensor]


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
        value_head: Maps hidden states [N, D] to values [N], where one is trained.
        shards: How the ranks share the model, where it is sharded.
        quantization: Of the frozen base, where it is quantized.
    """

    model: Any
    tokenizer: Any
    source: ModelSource
    device: torch.device
    autocast: torch.dtype | None
    choices: list[ResolvedDefault] = field(default_factory=list)
    value_head: ValueHead | None = None
    shards: Shards | None = None
    quantization: Quantization | None = None
    _reference: Any = None

    @property
    def is_adapter(self) -> bool:
        """Whether only an adapter is trained."""
        return hasattr(self.model, "peft_config")

    @property
    def wide(self) -> torch.dtype:
        """The dtype of per-token sums: float64 where the device has it."""
        return torch.float32 if self.device.type == "mps" else torch.float64

    @property
    def precision_name(self) -> str:
        """Floating-point type of the model's products, as `precision` names it."""
        return str(self.autocast or self.model.dtype).removeprefix("torch.")

    def parameters(self) -> list[torch.nn.Parameter]:
        """The parameters of the model that are trained, without the value head's."""
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad]

    def precision(self) -> contextlib.AbstractContextManager[Any]:
        """The context in which the model runs."""
        if self.autocast is None:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=self.autocast)

    def states(
        self, input_ids: Tensor, prompt_lens: Tensor, completion_lens: Tensor, packs: Sequence[Pack]
    ) -> CompletionStates:
        """The hidden states that predict the completions' tokens; see `packed_states`. Call it within `precision()`."""
        return packed_states(self.model, input_ids, prompt_lens, completion_lens, packs)

    def shard(self) -> None:
        """Share the model, its frozen copy and the value head out over the ranks, which hold equal ones until now.

        Raises:
            UserError: the model does not say what its layers are.
        """
        self.shards = Shards(self.device, self.autocast)
        self.shards.add(self.model, self.value_head)
        if isinstance(self._reference, torch.nn.Module):
            self.shards.add(self._reference)

    def in_step(self, *expected: type[BaseException]) -> contextlib.AbstractContextManager[None]:
        """The context in which ranks run passes, as many as each has; see `Shards.in_step`."""
        return contextlib.nullcontext() if self.shards is None else self.shards.in_step(*expected)

    def whole(self, wanted: bool) -> contextlib.AbstractContextManager[None]:
        """The context in which a sharded model is held in one piece, if that is wanted; see `Shards.whole`."""
        return self.shards.whole() if wanted and self.shards is not None else contextlib.nullcontext()

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

    @property
    def has_reference(self) -> bool:
        """Whether `freeze_reference` was called."""
        return self._reference is not None

    def reference_weights(self) -> Weights | None:
        """What `save_reference` needs where the model is sharded; every rank takes part."""
        if self.shards is None:
            return None
        if self._reference == REFERENCE_ADAPTER:
            return Weights(gathered_state(self.model, lambda name: f".{REFERENCE_ADAPTER}." in name), {})
        return Weights({} if self._reference == "base" else gathered_state(self._reference), {})

    def save_reference(self, folder: Path, weights: Weights | None = None) -> None:
        """Store the anchor with the run: `reference.json` says what it is, beside its weights where it has any.

        A fresh adapter's anchor is its base model, which is named; a loaded adapter or a full model is written.

        Args:
            folder: Receives it.
            weights: Of `reference_weights`.
        """
        kind = self._reference if isinstance(self._reference, str) else "model"
        given = {} if weights is None else {"state_dict": dict(weights.model)}
        folder.mkdir(parents=True, exist_ok=True)
        if kind == "model":
            self._reference.save_pretrained(folder / "model", **given)
        elif kind == REFERENCE_ADAPTER:
            self.model.save_pretrained(folder, selected_adapters=[REFERENCE_ADAPTER], **given)
        facts = {"kind": kind, "base": self.source.name}
        (folder / REFERENCE_FILE).write_bytes(orjson.dumps(facts, option=orjson.OPT_APPEND_NEWLINE))

    def load_reference(self, folder: Path) -> None:
        """Take the anchor that `save_reference` stored, whatever the policy has become since.

        Raises:
            UserError: the folder holds no reference, or one that does not fit this policy.
        """
        try:
            kind = orjson.loads((folder / REFERENCE_FILE).read_bytes())["kind"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{folder}: no stored reference policy there ({error}).") from None
        if (kind == "model") == self.is_adapter:
            raise UserError(
                f"{folder}: the stored reference is a {kind}, and this policy "
                f"{'trains an adapter' if self.is_adapter else 'is fully trained'}."
            )
        if kind == "model":
            model = copy.deepcopy(self.model)
            weights: dict[str, Tensor] = {}
            try:
                for file in sorted((folder / "model").glob("*.safetensors")):
                    weights |= load_file(file)
                missing, unexpected = model.load_state_dict(weights, strict=False)
            except (SafetensorError, OSError, RuntimeError) as error:
                reason = " ".join(str(error).split())
                raise UserError(f"{folder}: the stored reference cannot be loaded: {reason:.300}") from error
            tied = set(getattr(model, "_tied_weights_keys", None) or ())
            if unexpected or set(missing) - tied:
                raise UserError(f"{folder}: the stored reference is of another model.")
            self._reference = model.eval().requires_grad_(False)
        elif kind == REFERENCE_ADAPTER:
            if REFERENCE_ADAPTER not in self.model.peft_config:
                active = self.model.active_adapter
                self.model.load_adapter(str(folder / REFERENCE_ADAPTER), REFERENCE_ADAPTER, is_trainable=False)
                self.model.set_adapter(active)
            self._reference = REFERENCE_ADAPTER
        else:
            self._reference = "base"

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
                yield Policy(
                    self._reference, self.tokenizer, self.source, self.device, self.autocast, shards=self.shards
                )

    def _adapter_is_fresh(self) -> bool:
        return all(not bool(parameter.any()) for name, parameter in self.model.named_parameters() if ".lora_B." in name)

    def add_value_head(self, seed: int) -> None:
        """Put a fresh value head beside the model, if there is none yet."""
        if self.value_head is None:
            embeddings = self.model.get_input_embeddings().weight
            self.value_head = ValueHead(embeddings.shape[1], seed=seed).to(self.device, embeddings.dtype)

    def weights(self) -> Weights | None:
        """What `save` needs where the model is sharded, on the CPU of the first rank; every rank takes part."""
        if self.shards is None:
            return None
        adapter = f".{self.model.active_adapter}." if self.is_adapter else ""
        value_head = {} if self.value_head is None else gathered_state(self.value_head)
        return Weights(gathered_state(self.model, lambda name: adapter in name), value_head)

    def save(self, folder: Path, weights: Weights | None = None) -> None:
        """Write the model (or the adapter) as safetensors, with its tokenizer and the value head.

        Args:
            folder: Receives them.
            weights: Of `weights()`.
        """
        options: dict[str, Any] = {"selected_adapters": [self.model.active_adapter]} if self.is_adapter else {}
        if weights is not None:
            options["state_dict"] = dict(weights.model)
        self.model.save_pretrained(folder, **options)
        self.tokenizer.save_pretrained(folder)
        if self.quantization is not None:
            self.quantization.save(folder)
        if self.value_head is not None:
            self.value_head.save(folder / VALUE_HEAD_FILE, None if weights is None else weights.value_head)
