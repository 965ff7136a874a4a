"""Matrix products on a CPU through oneDNN, where torch's own go through MKL, which is slower on many processors.

With two threads and the layers of SmolLM2-135M in float32, 1,700 tokens are multiplied by `F.linear` and by oneDNN at
140 and 175 GFLOP/s on an AMD Zen 4, and at 214 and 470 on an AMD with a full 512-bit unit, which MKL does not use.
Gradients gain as much. With packed weights 32 tokens take half of `F.linear`'s time. On a Zen 3, which has no AVX-512,
only products with large weights gain, and gradients of weights none: MKL makes those 1.2 to 2.4 times as fast. In
bfloat16 `F.linear` is oneDNN's already.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

MIN_PRODUCTS = 2**20
"""Least multiplications of a product: below, the call of oneDNN takes longer than it saves."""

MIN_WEIGHT_WITHOUT_AVX512 = 2**18
"""Least numbers of a weight on a CPU without AVX-512: MKL multiplies with smaller ones up to twice as fast."""


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


@cache
def has_avx512() -> bool:
    """Whether this CPU has AVX-512, which decides what oneDNN gains."""
    return bool(torch.cpu.get_capabilities().get("avx512_f"))


def multiplies_bfloat16() -> bool:
    """Whether this CPU has instructions that multiply bfloat16, and torch uses them."""
    has = torch.cpu.get_capabilities()
    return has_onednn() and bool(has.get("avx512_bf16") or has.get("amx_bf16"))


def emulates_bfloat16(device: torch.device) -> bool:
    """Whether bfloat16 on this device is a CPU's without instructions for it: up to 12 times slower than float32."""
    return device.type == "cpu" and has_onednn() and not multiplies_bfloat16()


def has_packed_layout(dtype: torch.dtype) -> bool:
    """Whether oneDNN has a layout of its own for weights of a type on this CPU: bfloat16 needs AVX-512 or better."""
    if dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return dtype == torch.float32


def uses_onednn(weight: Tensor, rows: int) -> bool:
    """Whether products of some rows with a weight [N, K] are oneDNN's: they are large, in float32, on a CPU."""
    return (
        type(weight) in (Tensor, nn.Parameter)  # not a shard, nor quantized
        and weight.device.type == "cpu"
        and weight.dtype == torch.float32
        and rows * weight.numel() >= MIN_PRODUCTS
        and has_onednn()
        and (has_avx512() or weight.numel() >= MIN_WEIGHT_WITHOUT_AVX512)
    )


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`F.linear`, differentiable once: [*, K] and [N, K] -> [*, N]."""
    rows = x.numel() // weight.shape[1]
    if x.dtype != torch.float32 or torch.is_autocast_enabled("cpu") or not uses_onednn(weight, rows):
        return F.linear(x, weight, bias)
    if torch.is_grad_enabled():
        product: Tensor = _Product.apply(x, weight, bias)  # type: ignore[no-untyped-call]  # torch does not annotate it
        return product
    return _product(x, weight, bias)


def use_onednn(model: nn.Module) -> None:
    """Let the plain linear layers of a model multiply through `linear`, in training too."""
    for module in model.modules():
        if type(module) is nn.Linear:
            module.__class__ = Linear


class Linear(nn.Linear):
    """`nn.Linear` that multiplies through `linear`."""

    def forward(self, input: Tensor) -> Tensor:
        """[*, K] -> [*, N]."""
        if torch.compiler.is_compiling():  # which chooses among the libraries by itself
            return super().forward(input)
        return linear(input, self.weight, self.bias)


class _Product(torch.autograd.Function):
    """y = x Wᵀ + b, ∂x = ∂y W, ∂W = ∂yᵀ x, ∂b = Σ ∂y."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        rows = grad.flatten(0, -2)
        return (
            _product(grad, weight.t(), None) if needs_x else None,
            _gradient(rows.t(), x.flatten(0, -2)) if needs_weight else None,
            rows.sum(0) if needs_bias else None,
        )


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    # The operator that torch.compile calls for a linear layer; torch gives it no other public name.
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return product


def _gradient(a: Tensor, b: Tensor) -> Tensor:
    return _product(a, b.t(), None) if has_avx512() else a @ b


def copied_linear(weight: Tensor, bias: Tensor | None, rows: int) -> Callable[[Tensor], Tensor]:
    """`F.linear` without a gradient by a copy of the weight [N, K], in oneDNN's own layout where that gains.

    Under autocast the copy is in its type. It does not follow the weight.

    Args:
        weight: In float32.
        bias: [N].
        rows: Tokens of a pass, for which the layout is chosen.
    """
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else weight.dtype
    gains = uses_onednn(weight, rows) and has_packed_layout(dtype)
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
            if isinstance(module, nn.Linear)
            and type(module) in (nn.Linear, Linear)
            and uses_onednn(module.weight, rows)
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
