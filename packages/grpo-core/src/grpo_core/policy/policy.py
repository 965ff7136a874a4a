"""The model being trained or sampled from, and its frozen reference."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from grpo_core.algorithms.hidden_states import CompletionStates
from grpo_core.algorithms.packing import Pack, packed_states
from grpo_core.policy.answers import answers_of, check_answers
from grpo_core.policy.first_rank import is_on_meta
from grpo_core.policy.parts import gathered_state, is_of_adapter
from grpo_core.policy.quantization import Quantization
from grpo_core.policy.reference import Reference
from grpo_core.policy.sharding import ALL_RANKS, ShardLayout, Shards
from grpo_core.policy.value_head import VALUE_HEAD_FILE, ValueHead
from grpo_sdk.callbacks import ResolvedDefault
from grpo_sdk.plugins.models import ModelSource


@dataclass(frozen=True, slots=True)
class Weights:
    """A sharded policy's weights, whole, as `Policy.save` writes them; empty on every rank but the first.

    Attributes:
        model: Weights of the model, or of its adapter, by name.
        value_head: Weights of the value head, by name.
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
        choices: Choices that were made while loading.
        value_head: Maps hidden states [N, D] to values [N], where one is trained.
        shards: How the ranks share the model, where it is sharded.
        quantization: How the frozen base is quantized; None where it is not.
        update_threads: Threads of the CPU in updates; None is as many as in sampling.
        sampled: A copy in shards of its own that is sampled from while this one trains, where there is one.
        anchor: The frozen reference, which is run by `reference()`.
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
    update_threads: int | None = None
    sampled: Policy | None = None
    anchor: Reference | None = None

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

    def shard(self, layout: ShardLayout = ALL_RANKS, sampling: dist.ProcessGroup | None = None) -> None:
        """Share the model, its frozen copy and the value head out over the ranks.

        Args:
            layout: How they are shared; it says whether every rank holds them until now, or the first one alone.
            sampling: Process group of a thread that samples while the model trains, from a copy that is made.

        Raises:
            UserError: the model does not say what its layers are.
        """
        if sampling is not None:
            model = copy.deepcopy(self.model).eval().requires_grad_(False)
            shards = Shards(self.device, self.autocast, layout, sampling)
            self.sampled = Policy(model, self.tokenizer, self.source, self.device, self.autocast, shards=shards)
            shards.add(model)
        self.shards = Shards(self.device, self.autocast, layout)
        self.shards.add(self.model, self.value_head)
        if self.anchor is not None and self.anchor.frozen is not None:
            self.shards.add(self.anchor.frozen)

    def in_step(self, *expected: type[BaseException]) -> contextlib.AbstractContextManager[None]:
        """The context in which ranks run passes, as many as each has; see `Shards.in_step`."""
        return contextlib.nullcontext() if self.shards is None else self.shards.in_step(*expected)

    def whole(self, wanted: bool) -> contextlib.AbstractContextManager[None]:
        """The context in which a sharded model is held in one piece, if that is wanted; see `Shards.whole`."""
        return self.shards.whole() if wanted and self.shards is not None else contextlib.nullcontext()

    def freeze_reference(self, kind: str | None = None) -> None:
        """Keep the policy as it is now as the reference: the anchor of the KL penalty, or a frozen opponent.

        Args:
            kind: Kind of reference of the rank that has the weights, for one that receives them.

        Raises:
            UserError: the policy trains an adapter, and its reference would be another model, or make it one.
        """
        if self.anchor is not None:
            return
        start = None if not self.is_adapter or is_on_meta(self.model) else answers_of(self.model)
        self.anchor = Reference.freeze(self.model, kind)
        if start is not None:
            cure = "Train plain LoRA, or without a reference: trainer.beta=0"
            with self.reference() as reference:
                check_answers(start, reference.model, "its reference", cure)
            agreed = check_answers(start, self.model, "the policy beside its reference", cure)
            self.choices.append(ResolvedDefault("reference", f"equal to the policy, {agreed}", "the adapter's own"))

    def load_reference(self, folder: Path) -> None:
        """Take the reference that `Reference.save` stored, whatever the policy has become since.

        Raises:
            UserError: the folder holds no reference, or one that does not fit this policy.
        """
        self.anchor = Reference.load(self.model, folder)

    @contextmanager
    def reference(self) -> Iterator[Policy]:
        """The reference policy, for as long as the context lasts; gradients do not flow."""
        assert self.anchor is not None, "freeze_reference() comes first"
        with torch.no_grad(), self.anchor.active() as model:
            if model is self.model:
                yield self
            else:
                yield Policy(model, self.tokenizer, self.source, self.device, self.autocast, shards=self.shards)

    def add_value_head(self, seed: int) -> None:
        """Put a fresh value head beside the model, if there is none yet."""
        if self.value_head is None:
            embeddings = self.model.get_input_embeddings().weight
            self.value_head = ValueHead(embeddings.shape[1], seed=seed).to(self.device, embeddings.dtype)

    def weights(self) -> Weights | None:
        """The weights for `save` where the model is sharded, on the CPU of the first rank; every rank takes part."""
        if self.shards is None:
            return None
        adapter = self.model.active_adapter if self.is_adapter else None
        value_head = {} if self.value_head is None else gathered_state(self.value_head)
        own = {name for name, parameter in self.model.named_parameters() if parameter.requires_grad}  # biases, too
        model = gathered_state(self.model, lambda name: adapter is None or name in own or is_of_adapter(name, adapter))
        return Weights(model, value_head)

    def save(self, folder: Path, weights: Weights | None = None) -> None:
        """Write the model (or the adapter) as safetensors, with its tokenizer and the value head.

        Args:
            folder: Folder that receives them.
            weights: Result of `weights()`.
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
