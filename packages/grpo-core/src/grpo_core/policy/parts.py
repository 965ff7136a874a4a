"""Tensors of which this rank may hold a part: whole again, or cut."""

from __future__ import annotations

from collections.abc import Callable

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor


def local_part(tensor: Tensor) -> Tensor:
    """The part of a tensor that this rank holds: all of it, unless it is sharded."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor, on every rank; where it is sharded, every rank takes part."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def gathered(tensor: Tensor) -> Tensor | None:
    """All of a tensor on the CPU of the first rank, None on the others; every rank takes part.

    So one at a time is whole on the device, however many are saved.
    """
    full = whole(tensor.detach())
    return full.cpu().contiguous() if not dist.is_initialized() or dist.get_rank() == 0 else None


def gathered_state(module: nn.Module, chosen: Callable[[str], bool] = lambda name: True) -> dict[str, Tensor]:
    """A module's state dict on the CPU of the first rank, empty on the others; tied weights stay one tensor."""
    result: dict[str, Tensor] = {}
    seen: dict[int, Tensor | None] = {}
    state: dict[str, Tensor] = module.state_dict(keep_vars=True)  # the parameters themselves, by which ties are seen
    for name, tensor in state.items():
        if not chosen(name):
            continue
        if id(tensor) not in seen:
            seen[id(tensor)] = gathered(tensor)
        if (full := seen[id(tensor)]) is not None:
            result[name] = full
    return result


def is_of_adapter(name: str, adapter: str) -> bool:
    """Whether a parameter is an adapter's: the adapter's name is a part of its own, the last one for embeddings."""
    return adapter in name.split(".")


def cut_like(tensor: Tensor, like: Tensor) -> Tensor:
    """This rank's part of a tensor that every rank has whole, where `like` is sharded; nothing is exchanged."""
    if not isinstance(like, DTensor):
        return tensor.to(like.device)
    cut = distribute_tensor(tensor, like.device_mesh, like.placements, src_data_rank=None)
    return cut.to(like.device)  # which is the CPU where shards of a GPU wait in host memory
