"""Prints the MiB that 64 MiB take which are cut from larger tensors."""

import resource
from pathlib import Path

import torch

from grpo_core.policy.memory import returning_freed_memory


def resident_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


with returning_freed_memory():
    before, kept = resident_mib(), []
    torch.ones(2**22)  # a freed block raises the size from which on glibc maps
    for _ in range(16):
        wholes = [torch.ones(2**20) for _ in range(4)]  # 16 MiB, of which a quarter is kept
        kept += [whole[: 2**18].clone() for whole in wholes]
        del wholes
    print(resident_mib() - before)
