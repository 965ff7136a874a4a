"""Matrix products on a CPU through oneDNN, where torch's own go through MKL, which is slower on many processors.

On an AMD Zen 4 with two threads, the layers of SmolLM2-135M in float32: 32 tokens are multiplied at 62 GFLOP/s by
`F.linear`, at 102 here and at 135 with packed weights; 1,700 tokens at 140 and 175. In bfloat16 `F.linear` is oneDNN's
already: 162, and 225 with packed weights. A whole forward and backward pass through `linear` gains 3 to 5%, too little
to replace a model's layers in training.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

MIN_ELEMENTS = 2**16
"""Least elements of a weight: products with smaller ones take as long either way."""


@cache
def has_onednn() -> bool:
    """Whether this torch has the products of oneDNN. On ARM they were not measured, so they are not used."""
    operators = torch.ops.mkldnn
    return (
        platform.machine().lower() in ("x86_64", "amd64")
        and torch.backends.mkldnn.is_available()
        and hasattr(operators, "_linear_pointwise")
        and hasattr(operators, "_reorder_linear_weight")
    )


def multiplies_bfloat16() -> bool:
    """Whether this CPU has instructions that multiply bfloat16, and torch uses them."""
    has = torch.cpu.get_capabilities()
    return has_onednn() and bool(has.get("avx512_bf16") or has.get("amx_bf16"))


def uses_onednn(weight: Tensor) -> bool:
    """Whether products with a weight [N, K] are oneDNN's here: it is a large one in float32, on a CPU."""
    return (
        type(weight) in (Tensor, nn.Parameter)  # not a shard, nor quantized
        and weight.device.type == "cpu"
        and weight.dtype == torch.float32
        and weight.numel() >= MIN_ELEMENTS
        and has_onednn()
    )


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`F.linear` without a gradient: [*, K] and [N, K] -> [*, N]."""
    if x.dtype == torch.float32 and uses_onednn(weight):
        return _product(x, weight, bias)
    return F.linear(x, weight, bias)


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    # The operator that torch.compile calls for a linear layer; torch gives it no other public name.
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return product


def copied_linear(weight: Tensor, bias: Tensor | None, rows: int) -> Callable[[Tensor], Tensor]:
    """`F.linear` without a gradient by a copy of the weight [N, K], in oneDNN's own layout where that gains.

    Under autocast the copy is in its type. It does not follow the weight.

    Args:
        weight: In float32.
        bias: [N].
        rows: Tokens of a pass, for which the layout is chosen.
    """
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else weight.dtype
    gains = uses_onednn(weight)
    weight, bias = weight.detach().to(dtype), None if bias is None else bias.detach().to(dtype)
    if not gains:
        return lambda x: F.linear(x, weight, bias)
    with torch.no_grad():
        packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, rows)
    return lambda x: _product(x.to(dtype), packed, bias)


class PackedLinears:
    """Copies of a model's linear layers in the layout that oneDNN multiplies with, for many passes of a few tokens.

    Under autocast the copies are in its type. They do not follow the weights: make new ones when those have changed.

    Args:
        model: A model on any device; layers that gain nothing are left out.
        rows: Tokens of a pass, for which the layout is chosen.
    """

    def __init__(self, model: nn.Module, rows: int) -> None:
        self._copies = {
            module: copied_linear(module.weight, module.bias, rows)
            for module in model.modules()
            if type(module) is nn.Linear and uses_onednn(module.weight)
        }

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """The layers multiply with the copies within the block, without gradients."""
        for module, copied in self._copies.items():
            module.forward = copied  # type: ignore[method-assign,assignment]
        try:
            yield
        finally:
            for module in self._copies:
                del module.forward
