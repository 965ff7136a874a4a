"""Weights that the first rank alone reads: the others make the model on the meta device and receive it in pieces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor


def send_from_first_rank(module: nn.Module, device: torch.device) -> None:
    """Give a module the first rank's parameters and buffers; every rank calls it with a module of that structure.

    Tied parameters stay one, and what is in shards already is left out.

    Args:
        module: The module.
        device: Device of this rank, on which the module is afterwards.
    """
    received: dict[int, Tensor] = {}
    for owner, name, tensor in list(_tensors(module)):
        if isinstance(tensor, DTensor):
            continue
        if id(tensor) not in received:
            received[id(tensor)] = _received(tensor, device)
        setattr(owner, name, received[id(tensor)])


def _received(tensor: Tensor, device: torch.device) -> Tensor:
    if dist.get_rank() == 0:
        whole = tensor.detach().to(device).contiguous()
    else:
        whole = torch.empty(tensor.shape, dtype=tensor.dtype, device=device)
    if whole.numel():
        dist.broadcast(whole.view(-1).view(torch.uint8), src=0)  # bytes: gloo does not know every type
    return nn.Parameter(whole, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else whole


def _tensors(module: nn.Module) -> Iterator[tuple[nn.Module, str, Tensor]]:
    """(module that owns it, name in that module, tensor) of all parameters and buffers, tied ones each time."""
    for owner in module.modules():
        for name, tensor in (*owner.named_parameters(recurse=False), *owner.named_buffers(recurse=False)):
            yield owner, name, tensor


def is_on_meta(model: nn.Module) -> bool:
    """Whether a model has no weights on this rank, but receives them."""
    return any(parameter.is_meta for parameter in model.parameters())  # a loaded adapter's are there


def structure_of(model: Any) -> bytes:
    """What ranks must agree on to exchange a model's tensors, and its generation settings: JSON, for `difference`."""
    tensors: dict[str, list[Any]] = {}
    first: dict[int, str] = {}
    for name, tensor in (*model.named_parameters(remove_duplicate=False), *model.named_buffers()):
        tied_to = first.setdefault(id(tensor), name)
        tensors[name] = [list(tensor.shape), str(tensor.dtype), tensor.requires_grad, tied_to]
    return orjson.dumps({"tensors": tensors, "generation": model.generation_config.to_dict()}, default=str)


def take_generation_settings(model: Any, structure: bytes) -> None:
    """Give a model the generation settings of the one that `structure_of` describes."""
    from transformers import GenerationConfig

    settings = orjson.loads(structure)["generation"]
    model.generation_config = GenerationConfig.from_dict(settings)


def difference(first: bytes, other: bytes) -> str:
    """The first tensor in which two structures differ, in words; empty where they are the same."""
    ours, theirs = (orjson.loads(each)["tensors"] for each in (first, other))
    for name in {**ours, **theirs}:
        if ours.get(name) != theirs.get(name):
            return f"{name} is {theirs.get(name)} without the weights and {ours.get(name)} with them"
    return "" if list(ours) == list(theirs) else "the tensors are in another order without the weights"
