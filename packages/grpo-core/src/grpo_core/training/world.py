"""The processes of a run. Each holds the whole model and works on its share of the prompts; all take the same step.

Gradients are summed as they are, since the weights of tokens hold denominators of the whole step: ranks may have
different numbers of micro-batches, or none, and nothing waits for a rank's last one but the sum itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from grpo_core.errors import UserError

PATIENCE = timedelta(hours=12)
"""How long a rank waits for the others: the first one evaluates alone. A rank that fails ends them all at once."""


CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class World:
    """The ranks of a run; alone, every method is what one process needs.

    Attributes:
        rank: 0 is the one that writes.
        local_rank: Its number on its machine, which is that of its accelerator.
        size: How many there are.
        device: Where tensors must be to be exchanged.
    """

    rank: int = 0
    local_rank: int = 0
    size: int = 1
    device: torch.device = CPU

    @property
    def is_main(self) -> bool:
        """Whether this rank writes and speaks."""
        return self.rank == 0

    def share(self, n: int) -> range:
        """This rank's part of n things, in order: sizes differ by at most one."""
        return range(n * self.rank // self.size, n * (self.rank + 1) // self.size)

    def sum(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over all ranks; the same on each."""
        if self.size == 1:
            return tensor
        moved = tensor.to(self.device, copy=True)
        dist.all_reduce(moved)
        return moved.to(tensor.device)

    def sum_gradients(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Sum gradients in place; a parameter that no rank has a gradient for keeps none."""
        if self.size == 1:
            return
        there = self.sum(torch.tensor([parameter.grad is not None for parameter in parameters], dtype=torch.int32))
        some = [parameter for parameter, count in zip(parameters, there.tolist(), strict=True) if count]
        for parameter in some:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        for dtype in dict.fromkeys(parameter.dtype for parameter in some):
            gradients = [p.grad for p in some if p.dtype == dtype and p.grad is not None]
            flat = self.sum(torch.cat([gradient.flatten() for gradient in gradients]))
            for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
                gradient.copy_(part.view_as(gradient))

    def any(self, flag: bool) -> bool:
        """Whether it is so on any rank."""
        return (self.size > 1 and bool(self.sum(torch.tensor(int(flag))))) or flag

    def gather(self, data: bytes) -> list[bytes]:
        """Every rank's bytes, by rank, on each."""
        if self.size == 1:
            return [data]
        sizes = torch.zeros(self.size, dtype=torch.int64)
        sizes[self.rank] = len(data)
        sizes = self.sum(sizes)
        mine = torch.zeros(int(sizes.max()), dtype=torch.uint8)
        mine[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else mine[:0]
        every = [torch.empty_like(mine, device=self.device) for _ in range(self.size)]
        dist.all_gather(every, mine.to(self.device))
        return [bytes(one[:size].cpu().numpy()) for one, size in zip(every, sizes.tolist(), strict=True)]

    def from_main(self, data: bytes) -> bytes:
        """The first rank's bytes, on each."""
        return self.gather(data if self.is_main else b"")[0]


def is_launched() -> bool:
    """Whether torchrun (or `--nproc`) started this process as one of several."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


@contextmanager
def joined(device: str) -> Iterator[World]:
    """The world that torchrun's variables describe; one of a single process without them.

    Args:
        device: As configured; `auto` takes this rank's accelerator if there is one.

    Raises:
        UserError: the variables are incomplete.
    """
    if not is_launched():
        yield World()
        return
    try:
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        local_rank = int(os.environ.get("LOCAL_RANK", rank))
    except (KeyError, ValueError) as error:
        raise UserError(f"WORLD_SIZE is set, but RANK is no number ({error}): start several with torchrun.") from None
    on_cuda = device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
    where = torch.device("cuda", local_rank) if on_cuda else torch.device("cpu")
    if on_cuda:
        torch.cuda.set_device(where)
    dist.init_process_group("nccl" if on_cuda else "gloo", timeout=PATIENCE, rank=rank, world_size=size)
    try:
        yield World(rank, local_rank, size, where)
    finally:
        dist.destroy_process_group()
