"""A model in shards (FSDP2): each rank holds a part of every parameter, and a layer is whole only while it runs.

Embedding, final norm, output embedding and value head are one unit, the root, which the body's own forward gathers: its
callers read the head's weight themselves, a chunk of positions at a time, so it stays whole until `in_step` ends.

Where ranks form groups (HSDP), each group holds all parts: a layer is gathered within one, and gradients are summed
within one and then over all.

Running a layer gathers it from other ranks, so every rank has to run the same passes in the same order. Ranks have
other prompts, lengths and numbers of micro-batches; so before each pass they agree on whose kind comes next, and
whoever has none of that kind runs an empty one along:

    rank 0    policy   policy   policy   end              P P P          e: empty pass
    rank 1    policy   end                         ──▶    P e e
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor

from grpo_core.algorithms.causal_lm import CausalLM, causal_lm
from grpo_core.policy.first_rank import send_from_first_rank
from grpo_core.policy.ranks import backend_of
from grpo_sdk.errors import InfrastructureError, UserError

_END = 0
"""Kind of a rank that has no more passes; the others' kinds are numbers above it."""

_POLICY = 0
"""Index of the model that is trained; its frozen copy comes after it."""


@dataclass(frozen=True, slots=True)
class ShardLayout:
    """How ranks share a model.

    Attributes:
        size: Ranks that share one copy of the weights, neighbours by number; None: all.
        is_offloaded: Whether weights, gradients and moments are in host memory, and a layer is on the device only while
            it runs.
        from_first_rank: Whether the first rank alone has the weights, and the others a model on the meta device.
        timeout: Time that a rank waits for the others.
    """

    size: int | None = None
    is_offloaded: bool = False
    from_first_rank: bool = False
    timeout: timedelta | None = None


@dataclass(frozen=True, slots=True)
class _Root:
    """A model that ranks run together.

    Attributes:
        parts: The model.
        body: Its body, through which every pass goes.
        units: Modules that are gathered at once: the layers, and last the root itself.
        head: From hidden states [B, L, D] to something of everything that is trained behind the body.
    """

    parts: CausalLM
    body: FSDPModule
    units: Sequence[FSDPModule]
    head: Callable[[Tensor], Tensor]


ALL_RANKS = ShardLayout()


class Shards:
    """The sharded models of this rank: the policy and, of a full fine-tune, its frozen copy.

    Args:
        device: Device of this rank.
        autocast: The dtype of mixed precision, in which weights are gathered; gradients are summed in float32.
        layout: How the ranks share a model.
        group: Process group of passes that another thread runs; None is the default one.

    Attributes:
        layout: How the ranks share a model.
        size: Ranks that share one copy of the weights.
        copies: Copies of the weights that all ranks hold together.
    """

    def __init__(
        self,
        device: torch.device,
        autocast: torch.dtype | None,
        layout: ShardLayout = ALL_RANKS,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        """Make the mesh of ranks.

        Raises:
            UserError: this torch cannot sum what a rank did not use, as the expert that none of its tokens reach.
        """
        if not hasattr(FSDPModule, "set_reduce_scatter_unused_params"):
            raise UserError(
                f"trainer.sharding: torch {torch.__version__} has no FSDPModule.set_reduce_scatter_unused_params, as "
                "2.13 does. Use trainer.sharding=none, or a newer torch."
            )
        self._device, self._group = device, group
        self.layout = layout
        self.size = layout.size or dist.get_world_size()
        self.copies = dist.get_world_size() // self.size
        self._mesh = _mesh(device, layout, group)
        reduced = None if autocast is None else torch.float32
        self._precision = MixedPrecisionPolicy(param_dtype=autocast, reduce_dtype=reduced)
        self._offload = OffloadPolicy()
        if layout.is_offloaded:
            self._offload = CPUOffloadPolicy(pin_memory=device.type == "cuda")
        self._roots: list[_Root] = []
        self._in_step = self._is_whole = self._runs_empty = self._was_cut_off = False

    def add(self, model: nn.Module, value_head: nn.Module | None = None) -> None:
        """Shard a model in place; it is moved to the device layer by layer, so that the whole is never there.

        Args:
            model: A causal language model, with or without adapter; equal on every rank, unless the layout says that
                the first rank alone has its weights.
            value_head: Value head, which reads its hidden states beside the output embedding.

        Raises:
            UserError: it does not say what its layers are.
        """
        parts = causal_lm(model)  # checks, once per model, that the parts make the whole: sharded, it could not
        readers = [head for head in (parts.head, value_head) if head is not None]
        layers = _layers(parts)
        options: dict[str, Any] = {
            "mesh": self._mesh, "mp_policy": self._precision, "offload_policy": self._offload
        }  # fmt: skip
        for layer in layers:
            if self.layout.from_first_rank:
                send_from_first_rank(layer, self._device)
            fully_shard(layer, reshard_after_forward=True, **options)
        with _children(parts.body, readers):
            if self.layout.from_first_rank:
                send_from_first_rank(parts.body, self._device)
            fully_shard(parts.body, **options)
        units = [*layers, parts.body]
        for unit in units:
            assert isinstance(unit, FSDPModule), "fully_shard changes the module's class"
            # Sums, not means: the weights of tokens hold the whole step's denominator. gloo has no other operation.
            unit.set_gradient_divide_factor(1.0)
            unit.set_force_sum_reduction_for_comms(True)
            # A rank whose rows never reach a parameter (an expert) takes part in its sum all the same.
            unit.set_reduce_scatter_unused_params(True)
        outside = [name for name, parameter in model.named_parameters() if not isinstance(parameter, DTensor)]
        assert not outside, f"outside of body and head: {outside}"

        def head(hidden: Tensor) -> Tensor:
            logits = parts.head(hidden).flatten()
            return logits if value_head is None else torch.cat((logits, value_head(hidden.flatten(0, 1)).to(logits)))

        index = len(self._roots)
        self._roots.append(_Root(parts, parts.body, units, head))  # type: ignore[arg-type] # FSDPModules: asserted
        parts.body.register_forward_pre_hook(lambda *_: self._meet(index), prepend=True)
        parts.body.register_forward_hook(lambda *_: self._ran())
        # FSDP finds its root and what is trained in the first pass, which might be one with the adapter off.
        self._run_empty(_kind(index, with_gradient=False))
        self.release()

    @contextmanager
    def in_step(self, *expected: type[BaseException]) -> Iterator[None]:
        """Passes of the block are run in step with the other ranks, and at its end the others' are until all are done.

        Every rank comes to every block. Inside, nothing else may be exchanged between ranks: they would answer one
        another's questions. Of nested blocks the outermost counts.

        Args:
            *expected: Exceptions that may leave the block on one rank alone; those of others are accompanied first.
        """
        if self._in_step:
            yield
            return
        self._in_step = True
        try:
            yield
            self._accompany()
        except expected:
            self._accompany()
            raise
        finally:
            self._in_step = False
        self.release()

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Hold the policy in one piece on every rank within the block, for many passes without gradient."""
        units = self._roots[_POLICY].units
        for unit in units:
            unit.unshard()
            unit.set_reshard_after_forward(False, recurse=False)
        self._is_whole = True
        try:
            yield
        finally:
            self._is_whole = False
            for layer in units[:-1]:  # the root never reshards after a pass: its head is read then
                layer.set_reshard_after_forward(True, recurse=False)
            for unit in units:
                unit.reshard()

    def release(self) -> None:
        """Free everything that passes have left gathered; the next optimizer step would make it stale."""
        for root in self._roots:
            root.body.reset_iter_state()

    def _meet(self, index: int) -> None:
        """Called before every pass of a body: run the others' kinds empty until this one is whose turn it is."""
        if self._runs_empty:
            return
        assert self._in_step, "a sharded model runs within in_step(), or ranks wait for one another for ever"
        if index == _POLICY and self._is_whole:
            return  # nothing is gathered
        if self._was_cut_off:
            raise InfrastructureError(
                "a pass of the sharded model was cut off on this rank, most likely for want of memory, and it cannot "
                "be repeated: the other ranks have done theirs. Lower engine.max_batch_tokens or "
                "trainer.micro_batch_tokens, and resume."
            )
        wanted = _kind(index, with_gradient=torch.is_grad_enabled())
        while (next_kind := self._agree(wanted)) != wanted:
            self._run_empty(next_kind)
        self._was_cut_off = True  # until it has run

    def _ran(self) -> None:
        self._was_cut_off = False

    def _accompany(self) -> None:
        while (next_kind := self._agree(_END)) != _END:
            self._run_empty(next_kind)

    def _agree(self, wanted: int) -> int:
        """The highest kind that any rank wants to run."""
        highest = torch.tensor(wanted, device=self._device)
        dist.all_reduce(highest, dist.ReduceOp.MAX, group=self._group)
        return int(highest)

    def _run_empty(self, kind: int) -> None:
        """A pass over one token which changes nothing: its gradient is 0, and no random number is consumed."""
        index, with_gradient = divmod(kind - 1, 2)
        root = self._roots[index]
        devices = [self._device] if self._device.type == "cuda" else []
        # The state of random numbers is the whole process's: a thread that only samples must not put it back.
        uses_random = root.parts.model.training
        self._runs_empty = True
        try:
            with torch.random.fork_rng(devices, uses_random), torch.set_grad_enabled(bool(with_gradient)):
                token = torch.zeros(1, 1, dtype=torch.int64, device=self._device)
                hidden = root.parts.hidden(token, use_cache=False)
                if with_gradient:
                    (root.head(hidden) * 0).sum().backward()
        finally:
            self._runs_empty = False


def _mesh(device: torch.device, layout: ShardLayout, group: dist.ProcessGroup | None) -> DeviceMesh:
    """The ranks as torch sees them: in a row, or a row for each group.

    Meshes of equal ranks and names are equal to torch, which then takes the process groups of either, also of a world
    that this process has left: the names are new ones each time.
    """
    world, number = dist.get_world_size(), next(_mesh_numbers)
    if layout.size in (None, world):
        if group is None:
            return init_device_mesh(device.type, (world,))
        return DeviceMesh.from_group(group, device.type, mesh_dim_names=(f"beside_{number}",))
    ranks = torch.arange(world).view(-1, layout.size)  # [copies, size]
    groups = [  # with their own timeout: those that a mesh makes wait as long as torch's do
        dist.new_subgroups_by_enumeration(rows.tolist(), layout.timeout, backend_of(device))[0]
        for rows in (ranks.T, ranks)
    ]
    names = (f"replicate_{number}", f"shard_{number}")
    return DeviceMesh.from_group(groups, device.type, ranks, mesh_dim_names=names)


_mesh_numbers = count()


def _kind(index: int, *, with_gradient: bool) -> int:
    """Passes of one kind gather and sum the same things: those of one root, with or without a backward pass."""
    return 1 + 2 * index + with_gradient


def check_shardable(model: nn.Module) -> None:
    """Check a model before it is shared out, where its weights are.

    Raises:
        UserError: it is no causal language model that can be taken apart, or does not say what its layers are.
    """
    _layers(causal_lm(model))


def _layers(parts: CausalLM) -> list[Any]:
    """The decoder layers, by the classes that the model says must stay together."""
    names = set(parts.model._no_split_modules or ())
    layers = [module for module in parts.body.modules() if type(module).__name__ in names]
    if not layers:
        raise UserError(
            f"trainer.sharding: {type(parts.model).__name__} does not name its decoder layers "
            "(_no_split_modules), so there is nothing to shard it by. Use trainer.sharding=none, or another model."
        )
    return layers


@contextmanager
def _children(module: nn.Module, others: Sequence[nn.Module]) -> Iterator[None]:
    """Make others children of a module within the block: `fully_shard` takes what it finds below it into one unit."""
    present = set(module.modules())
    names = {f"_{index}": other for index, other in enumerate(others) if other not in present}
    for name, other in names.items():
        module.add_module(name, other)
    try:
        yield
    finally:
        for name in names:
            delattr(module, name)
