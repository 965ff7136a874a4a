"""Checks that a process's peak is that since the reset, and that the whole one stays."""

import torch

from grpo_core.policy.memory import peak_memory_mib
from grpo_core.policy.memory_meter import MIB, ProcessMeter

BLOCK = 120 * MIB
meter = ProcessMeter()
meter.reset()
before = meter.peak()
block = torch.ones(BLOCK, dtype=torch.uint8)
with_block = meter.peak()
assert with_block - before > 0.9 * BLOCK, (before, with_block)
del block
meter.reset()
assert meter.peak() < with_block - 0.5 * BLOCK
for device in (None, torch.device("cpu")):
    assert peak_memory_mib(device) >= 0.99 * with_block / MIB  # the kernel counts in batches
assert meter.limit() > with_block
