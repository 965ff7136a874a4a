"""The device and the precision that a model is computed with."""

from __future__ import annotations

import torch

from grpo_core.algorithms.cpu_matmul import emulates_bfloat16
from grpo_sdk.errors import UserError

EMULATED = "this CPU has neither AVX512-BF16 nor AMX, and computes bfloat16 several times slower than float32"

DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


def choose_device(device: str) -> tuple[torch.device, str]:
    """Resolve `auto` to an accelerator if there is one.

    Returns:
        (device, the reason).

    Raises:
        UserError: a device that this machine or this torch does not have.
    """
    if device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda"), "the first accelerator found"
        if torch.backends.mps.is_available():
            return torch.device("mps"), "the first accelerator found"
        return torch.device("cpu"), "no accelerator found"
    try:
        chosen = torch.device(device)
    except RuntimeError:
        raise UserError(f"device={device[:40]!r}: give auto, cpu, cuda, cuda:N or mps.") from None
    present = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not present.get(chosen.type, False):
        have = ", ".join(name for name, is_present in present.items() if is_present)
        raise UserError(f"device={device}: torch {torch.__version__} finds no such device here; it has {have}.")
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        raise UserError(
            f"device={device}: this machine has {torch.cuda.device_count()} CUDA device(s), counted from 0."
        )
    return chosen, "asked for"


BFLOAT16_CAPABILITY = (8, 0)
"""CUDA compute capability from which bfloat16 is computed (Ampere); below, torch emulates it, slowly."""


def choose_precision(precision: str, device: torch.device) -> tuple[torch.dtype, torch.dtype | None, str]:
    """Resolve `auto`: on CUDA mixed precision in bfloat16, or float16 where that is emulated; else float32.

    In float16 the loss is scaled, so that small gradients are not lost (`Updater`).

    Returns:
        (dtype of the weights, autocast dtype or None, the reason).
    """
    if precision == "auto":
        if device.type == "cuda":
            autocast, why = _mixed_precision(device)
            return torch.float32, autocast, f"{why}: mixed precision, weights in float32"
        return torch.float32, None, f"float32: the safe choice on {device.type}"
    chosen = DTYPES[precision]
    if chosen in (torch.bfloat16, torch.float16):
        is_slow = chosen is torch.bfloat16 and emulates_bfloat16(device)
        why = f"asked for, though {EMULATED}" if is_slow else "asked for"
        return torch.float32, chosen, f"{precision} mixed precision, weights in float32: {why}"
    return chosen, None, f"{precision}: asked for"


def _mixed_precision(device: torch.device) -> tuple[torch.dtype, str]:
    """The type in which a CUDA device computes fast, and the reason."""
    if torch.version.hip is not None:  # whose capability numbers are others; every GPU that ROCm supports has bfloat16
        return torch.bfloat16, "bfloat16: a ROCm device has it"
    capability = torch.cuda.get_device_capability(device)
    shown = f"compute capability {capability[0]}.{capability[1]}"
    needed = f"{BFLOAT16_CAPABILITY[0]}.{BFLOAT16_CAPABILITY[1]}"
    if capability >= BFLOAT16_CAPABILITY:
        return torch.bfloat16, f"bfloat16, which {shown} has"
    return torch.float16, f"float16 with a scaled loss, because {shown} is below {needed} and would emulate bfloat16"
