"""Memory of the device: what it has room for, how it runs out, and what is kept of it.

On a CPU the memory of a training's tensors is kept from step to step. The C library would return it to the system after
each, and a system that hands out gigabytes anew, a page of zeros at a time, can take as long for it as the step.
"""

from __future__ import annotations

import ctypes
import gc
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from grpo_core.algorithms.causal_lm import causal_lm
from grpo_core.profiles.estimate import cached_tokens
from grpo_core.profiles.model_shape import shape_of
from grpo_sdk.errors import GrpoError

MEMORY_SHARE = 0.7
"""Share of an accelerator's free memory for keys and values; the rest is for activations, logits and fragmentation."""

_NO_MEMORY = ("can't allocate memory", "CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED")
"""In errors of the CPU's allocator; and of CUDA's driver and cuBLAS, where another process has taken the memory."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's mallopt, from malloc.h: M_TRIM_THRESHOLD and M_MMAP_THRESHOLD."""

LARGEST_IN_HEAP = 2**25
"""Blocks below this many bytes come from the heap, which keeps them; glibc allows no more."""


SMALLEST_RETURNED = 2**18
"""Bytes of a block from which on `returning_freed_memory` returns it: smaller than the matrices of a layer."""


class OutOfMemoryError(GrpoError, MemoryError):
    """Not even one completion fits."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that memory ran out, on an accelerator or on the CPU."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return not isinstance(error, OutOfMemoryError)
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _NO_MEMORY)


def keep_freed_memory(device: torch.device) -> None:
    """Let the C library keep what is freed until `release`, if tensors are in its memory and it is glibc.

    `MALLOC_TRIM_THRESHOLD_` in the environment is left in effect.
    """
    if device.type != "cpu" or not _is_glibc() or "MALLOC_TRIM_THRESHOLD_" in os.environ:
        return
    libc = ctypes.CDLL(None)
    libc.mallopt(_MMAP_THRESHOLD, LARGEST_IN_HEAP)
    libc.mallopt(_TRIM_THRESHOLD, -1)


@contextmanager
def returning_freed_memory() -> Iterator[None]:
    """Return large blocks to the system as soon as they are freed within the block, if the C library is glibc.

    It would keep them in its heap by and by, where the whole layers that shards are cut from leave holes between these:
    a process would hold as much as the whole model.
    """
    if not _is_glibc():
        yield
        return
    libc = ctypes.CDLL(None)
    libc.mallopt(_MMAP_THRESHOLD, SMALLEST_RETURNED)
    try:
        yield
    finally:
        libc.mallopt(_MMAP_THRESHOLD, LARGEST_IN_HEAP)  # up to which glibc raises it by itself


def release() -> None:
    """Return free memory to the system. Call it after the exception of a failed attempt is gone, which held tensors."""
    gc.collect()
    if _is_glibc():
        ctypes.CDLL(None).malloc_trim(0)
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _is_glibc() -> bool:
    return platform.libc_ver()[0] == "glibc"


def tokens_that_fit(model: Any, device: torch.device, default: int) -> int:
    """Tokens of keys and values to hold at once: what fits an accelerator's free memory, else `default`.

    They are numbers of the model's dtype: float16 under autocast is cached as the model computes it, at most as wide.

    Args:
        model: A causal language model, with or without adapter.
        device: Where it is.
        default: For the CPU, whose memory others use too.
    """
    if device.type != "cuda":
        return default
    parts = causal_lm(model)
    shape = shape_of(parts.model.config.to_dict(), "")
    if shape is None:
        return default
    free, _ = torch.cuda.mem_get_info(device)
    free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return max(1, cached_tokens(shape, next(parts.body.parameters()).element_size(), MEMORY_SHARE * free))
