"""Prints what is measured of host memory, each in a process of its own that has torch imported and nothing else."""

import json
import multiprocessing
import resource
from collections.abc import Callable, Iterable
from pathlib import Path

import torch

from grpo_core.algorithms.cpu_matmul import linear
from grpo_core.policy.memory import keep_freed_memory, release, returning_freed_memory
from grpo_core.policy.memory_meter import MIB, ProcessMeter, peak_memory_mib

FORK = multiprocessing.get_context("fork")


def resident_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / MIB


def faults() -> int:
    """Page faults of 256 MiB."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [torch.ones(2**20) for _ in range(64)]
    del blocks
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def freed() -> Iterable[float]:
    """Page faults of memory taken a second time, and resident MiB before and after `release`."""
    keep_freed_memory(torch.device("cpu"))
    faults()
    yield faults()
    yield resident_mib()
    release()
    yield resident_mib()


def parts() -> Iterable[float]:
    """MiB that 64 MiB take which are cut from larger tensors."""
    with returning_freed_memory():
        before, kept = resident_mib(), []
        torch.ones(2**22)  # a freed block raises the size from which on glibc maps
        for _ in range(16):
            wholes = [torch.ones(2**20) for _ in range(4)]  # 16 MiB, of which a quarter is kept
            kept += [whole[: 2**18].clone() for whole in wholes]
            del wholes
        yield resident_mib() - before


def peaks() -> Iterable[float]:
    """Peak before a block of 120 MiB, with it, and after it and a reset; the highest of the process, and its limit."""
    meter = ProcessMeter()
    meter.reset()
    yield meter.peak() / MIB
    block = torch.ones(120 * MIB, dtype=torch.uint8)
    yield meter.peak() / MIB
    del block
    meter.reset()
    yield meter.peak() / MIB
    yield min(peak_memory_mib(device) for device in (None, torch.device("cpu")))
    yield meter.limit() / MIB


def many_lengths() -> Iterable[float]:
    """MiB that products and gradients of 900 lengths leave behind."""
    weight, x = torch.randn(512, 512, requires_grad=True), torch.randn(1000, 512)
    mib = []
    for tokens in range(999, 100, -1):
        linear(x[:tokens], weight).sum().backward()
        mib.append(resident_mib())
    yield mib[-1] - mib[0]


def apart(measure: Callable[[], Iterable[float]]) -> list[float]:
    """What is measured in a fork of this process."""
    here, there = FORK.Pipe(duplex=False)
    process = FORK.Process(target=lambda: there.send(list(measure())))
    process.start()
    there.close()
    found: list[float] = here.recv()
    process.join()
    return found


torch.set_num_threads(1)
print(json.dumps({measure.__name__: apart(measure) for measure in (freed, parts, peaks, many_lengths)}))
