"""Prints how many MiB products and gradients of 900 lengths leave behind."""

from pathlib import Path

import torch

from grpo_core.algorithms.cpu_matmul import linear

torch.set_num_threads(1)
weight, x = torch.randn(512, 512, requires_grad=True), torch.randn(1000, 512)
mib = []
for tokens in range(999, 100, -1):
    linear(x[:tokens], weight).sum().backward()
    mib.append(int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20)
print(mib[-1] - mib[0])
