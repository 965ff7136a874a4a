"""The threads that a model is computed with on a CPU.

Threads that wait for one another spin for long unless `OMP_WAIT_POLICY=PASSIVE` stands in the environment when torch is
imported, as `grpo_core` sees to. Beside other busy processes that makes a step 3 to 8 times slower.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

SMALL_PARAMETERS = 5e6
"""Below this a model samples on one thread: its matrices of a few tokens are too small to share."""

OPERATIONS_OF_THREAD = 1e9
"""Multiplications and additions of a step's forward passes that are worth a thread of their own."""

_AT_START = torch.get_num_threads()


def choose_threads(parameters: int, device: torch.device) -> str:
    """Compute a small model on one thread of the CPU, unless OMP_NUM_THREADS is set.

    Returns:
        The reason, empty where nothing was changed.
    """
    if not _is_chosen(parameters, device):
        return ""
    torch.set_num_threads(1)
    return "one thread, because the model is too small to share"


def share_threads(device: torch.device) -> str:
    """Give sampling and training, which run side by side, half of the threads each, where they run on the CPU.

    Both keep to it where they do not overlap, because the number of threads decides how sums are rounded.

    Returns:
        The threads of each, in words; empty where nothing was changed.
    """
    if device.type != "cpu":
        return ""
    before = torch.get_num_threads()
    each = max(1, before // 2)
    torch.set_num_threads(each)
    return f"{each} for sampling, {each} for training"


def update_threads(parameters: int, tokens: int, device: torch.device) -> int | None:
    """Threads for the updates of a small model, whose passes over all completions are larger than those of sampling.

    Args:
        parameters: Parameters of the model.
        tokens: Tokens of a step's completions, at most.
        device: Device of the model.

    Returns:
        The number, which depends on the run's sizes and the machine's cores alone; None leaves it as in sampling.
    """
    if not _is_chosen(parameters, device) or not _waits_asleep():
        return None
    threads = min(_AT_START, int(2 * parameters * tokens / OPERATIONS_OF_THREAD))
    return threads if threads > 1 else None


@contextmanager
def computing_with(threads: int | None) -> Iterator[None]:
    """Compute with this many threads within the block; None changes nothing."""
    before = torch.get_num_threads()
    if threads is not None:
        torch.set_num_threads(threads)
    try:
        yield
    finally:
        if threads is not None:
            torch.set_num_threads(before)


def _is_chosen(parameters: int, device: torch.device) -> bool:
    return device.type == "cpu" and parameters < SMALL_PARAMETERS and "OMP_NUM_THREADS" not in os.environ


def _waits_asleep() -> bool:
    return os.environ.get("OMP_WAIT_POLICY", "").upper() == "PASSIVE" or os.environ.get("GOMP_SPINCOUNT") == "0"
