"""Prints the page faults of 256 MiB taken a second time, and resident MiB before and after `release`."""

import resource
from pathlib import Path

import torch

from grpo_core.policy.memory import keep_freed_memory, release


def resident_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def faults() -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [torch.ones(2**20) for _ in range(64)]
    del blocks
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


keep_freed_memory(torch.device("cpu"))
faults()
print(faults(), resident_mib())
release()
print(resident_mib())
