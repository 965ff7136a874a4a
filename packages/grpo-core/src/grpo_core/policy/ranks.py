"""The processes of a run: each works on its share of the prompts, and all take the same step.

Where each holds the whole model, gradients are summed as they are, once per optimizer step: the weights of tokens hold
the denominators of the whole step, so ranks may have different numbers of micro-batches, or none. That is what
DistributedDataParallel does, less three things that would have to be undone: it divides by the number of ranks, it
waits for as many backward passes from each (or joins those that are done), and it wraps the module that samples. What
it has beside that is overlap: the sum runs during the last of a step's backward passes, and a step is mostly sampling.
Sharded models (`policy.sharding`) have summed their gradients already.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from itertools import count
from pathlib import Path
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous
from torch.distributed.tensor import DTensor

from grpo_core.policy.device import choose_device
from grpo_core.profiles.accelerator import process_count, process_options
from grpo_sdk.errors import EngineError, LostContactError, UserError

BUCKET_BYTES = 25 * 2**20
"""Gradients summed at once, DistributedDataParallel's own size: enough to fill the link, and no copy of all of them."""

CPU = torch.device("cpu")

_DONE, _FAILED = b"+", b"-"


@dataclass(frozen=True, slots=True)
class Ranks:
    """The ranks of a run; alone, every method is what one process needs.

    Attributes:
        rank: Number of this rank; rank 0 writes.
        local_rank: Its number on its machine, which is that of its accelerator.
        size: Number of ranks.
        device: Device of the tensors that are exchanged.
        device_why: Why it is this one.
        group: Process group of the exchange; None is the default one.
        timeout: Time that a rank waits for the others in an exchange.
    """

    rank: int = 0
    local_rank: int = 0
    size: int = 1
    device: torch.device = CPU
    group: dist.ProcessGroup | None = None
    timeout: timedelta | None = None
    device_why: str = ""

    def beside(self) -> Ranks:
        """The same ranks for another thread, whose exchanges may be at any time; every rank calls it."""
        if self.size == 1:
            return self
        return replace(self, device=CPU, group=dist.new_group(backend="gloo", timeout=self.timeout))

    @property
    def is_main(self) -> bool:
        """Whether this rank writes files and notifies callbacks."""
        return self.rank == 0

    def share(self, n: int) -> range:
        """This rank's part of n things, in order: sizes differ by at most one."""
        return range(n * self.rank // self.size, n * (self.rank + 1) // self.size)

    def sum(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over all ranks; the same on each."""
        if self.size == 1:
            return tensor
        moved = tensor.to(self.device, copy=True)
        dist.all_reduce(moved, group=self.group)
        return moved.to(tensor.device)

    def sum_gradients(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Sum gradients in place; a parameter that no rank has a gradient for keeps none, a sharded one has its sum."""
        whole = [parameter for parameter in parameters if not isinstance(parameter, DTensor)]
        if self.size == 1 or not whole:
            return
        counts = self.sum(torch.tensor([parameter.grad is not None for parameter in whole], dtype=torch.int32))
        gradients = []
        for parameter, owners in zip(whole, counts.tolist(), strict=True):
            if owners:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                gradients.append(parameter.grad)
        for bucket in _buckets(gradients):
            if len(bucket) == 1 and bucket[0].is_contiguous():
                dist.all_reduce(bucket[0])
                continue
            flat = torch.cat([gradient.flatten() for gradient in bucket])
            dist.all_reduce(flat)
            for gradient, part in zip(bucket, flat.split([g.numel() for g in bucket]), strict=True):
                gradient.copy_(part.view_as(gradient))

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on any rank."""
        return (self.size > 1 and bool(self.sum(torch.tensor(int(flag))))) or flag

    def gather(self, data: bytes) -> list[bytes]:
        """Every rank's bytes, by rank, on each."""
        if self.size == 1:
            return [data]
        sizes = torch.zeros(self.size, dtype=torch.int64)
        sizes[self.rank] = len(data)
        sizes = self.sum(sizes)
        padded = torch.zeros(int(sizes.max()), dtype=torch.uint8)
        padded[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else padded[:0]
        gathered = [torch.empty_like(padded, device=self.device) for _ in range(self.size)]
        dist.all_gather(gathered, padded.to(self.device), group=self.group)
        return [bytes(part[:size].cpu().numpy()) for part, size in zip(gathered, sizes.tolist(), strict=True)]

    def together(self, work: Callable[[], bytes]) -> list[bytes]:
        """Every rank's result, by rank, on each.

        Raises:
            EngineError: raised by the work of any rank; it is raised on all, and printed by the first.
            UserError: likewise.
        """
        if self.size == 1:
            return [work()]
        try:
            own = _DONE + work()
        except (EngineError, UserError) as error:
            kind = "EngineError" if isinstance(error, EngineError) else "UserError"
            own = _FAILED + json.dumps([kind, str(error)]).encode()
        results = self.gather(own)
        for result in results:
            if result.startswith(_FAILED):
                kind, message = json.loads(result[len(_FAILED) :])
                shared = EngineError(message) if kind == "EngineError" else UserError(message)
                shared.is_shared = True
                raise shared
        return [result[len(_DONE) :] for result in results]

    def lead(self, work: Callable[[], str]) -> str:
        """The result of work that only the first rank does, on each; raises as `together`."""
        return self.together(lambda: work().encode() if self.is_main else b"")[0].decode()

    def from_main(self, data: bytes) -> bytes:
        """The first rank's bytes, on each."""
        return self.gather(data if self.is_main else b"")[0]


_joined_before = count()


@cache
def _store(rank: int, size: int, timeout: timedelta) -> Store:
    """The store through which the ranks of this launch find one another."""
    store, _, _ = next(iter(rendezvous("env://", rank, size, timeout=timeout)))
    return cast(Store, store)  # which torch does not annotate


def _buckets(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Neighbours of one dtype, up to `BUCKET_BYTES` together; a larger one goes alone."""
    bucket: list[Tensor] = []
    for tensor in tensors:
        size = sum(other.nbytes for other in bucket)
        if bucket and (size + tensor.nbytes > BUCKET_BYTES or tensor.dtype != bucket[0].dtype):
            yield bucket
            bucket = []
        bucket.append(tensor)
    if bucket:
        yield bucket


def backend_of(device: torch.device) -> str:
    """Torch's backend of a process group whose tensors are on a device, or in host memory beside it."""
    return "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"


@contextmanager
def joined(device: str, timeout_s: float) -> Iterator[Ranks]:
    """The ranks that torchrun's variables describe; a single one without them.

    Args:
        device: The configured device; `auto` takes this rank's accelerator if there is one.
        timeout_s: Seconds that a rank waits for the others.

    Raises:
        UserError: the variables are incomplete, or torchrun has restarted this process.
        LostContactError: another rank has ended, or cannot be reached.
    """
    if process_count() == 1:
        yield Ranks()
        return
    try:
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        local_rank = int(os.environ.get("LOCAL_RANK", rank))
    except (KeyError, ValueError) as error:
        raise UserError(f"WORLD_SIZE is set, but RANK is no number ({error}): start several with torchrun.") from None
    if os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0":
        raise UserError(
            "torchrun has restarted this process, with the command that begins a run. Use grpo run --max-restarts K "
            "in its place, which goes on from the last checkpoint: grpo run --help."
        )
    where, why = choose_device(device)
    if where.type == "cuda":
        where, why = choose_device(f"cuda:{local_rank}")[0], "each process has its own"
        torch.cuda.set_device(where)
    elif where.type != "cpu":
        where, why = CPU, f"several processes cannot share {where.type}"
    timeout = timedelta(seconds=timeout_s)
    with in_contact():
        # A prefix of its own: a process may join several worlds, one run after another, and a store may outlive a
        # launch. A group that finds the addresses of the last one in the store waits for it for ever.
        launch = os.environ.get("TORCHELASTIC_RUN_ID", "")
        store = PrefixStore(f"{launch}/world_{next(_joined_before)}", _store(rank, size, timeout))
        dist.init_process_group(backend_of(where), store=store, timeout=timeout, rank=rank, world_size=size)
        try:
            yield Ranks(rank, local_rank, size, where, timeout=timeout, device_why=why)
        finally:
            dist.destroy_process_group()


@contextmanager
def in_contact(run_dir: Path | None = None) -> Iterator[None]:
    """Turn what torch raises where another rank is gone into one error.

    Args:
        run_dir: The run's folder, once it is known.

    Raises:
        LostContactError: another rank has ended, or cannot be reached.
    """
    try:
        yield
    except RuntimeError as error:
        # gloo has no class of its own; the path of its source stands in each of its messages.
        if not isinstance(error, dist.DistError) and "/gloo/" not in str(error):
            raise
        reason = " ".join(str(error).rpartition("] ")[2].split()) or type(error).__name__
        words = () if run_dir is None else ("grpo", "resume", str(run_dir), *process_options())
        resume = f" Its last checkpoint stands: {shlex.join(words)}" if words else ""
        raise LostContactError(
            f"rank {os.environ['RANK']} on {socket.gethostname()} has lost contact with the others ({reason:.200}): "
            f"one has ended, cannot be reached, or was busy for longer than trainer.ddp_timeout.{resume}"
        ) from error
