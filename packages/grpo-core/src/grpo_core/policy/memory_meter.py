"""Peak memory of a part of a run: of the accelerator that it uses, else of the process."""

from __future__ import annotations

import resource
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

MIB = 2**20

CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Files that hold a container's memory limit, of both versions of Linux's control groups."""

_highest: defaultdict[str, int] = defaultdict(int)
"""Peak of each device before its last reset, in bytes: of the whole process, whatever meters reset."""


class CudaMeter:
    """Memory of tensors on a CUDA device.

    Args:
        device: The device.
    """

    def __init__(self, device: torch.device) -> None:
        import torch

        self._device, self._cuda = device, torch.cuda
        self._name = f"cuda:{torch.cuda.current_device() if device.index is None else device.index}"

    def reset(self) -> None:
        """Start anew from the memory that is in use."""
        _highest[self._name] = self.highest()
        self._cuda.reset_peak_memory_stats(self._device)

    def peak(self) -> int:
        """Most bytes in use since the reset."""
        return self._cuda.max_memory_allocated(self._device)

    def limit(self) -> int:
        """Bytes that there are."""
        return self._cuda.mem_get_info(self._device)[1]

    def highest(self) -> int:
        """Most bytes in use so far, whatever was reset."""
        return max(_highest[self._name], self.peak())


class ProcessMeter:
    """Resident memory of this process.

    Only Linux can reset the peak. Elsewhere it is that of the whole process so far.
    """

    def reset(self) -> None:
        """Start anew from the memory that is in use."""
        _highest["process"] = self.highest()
        try:
            Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark (man 5 proc)
        except OSError:
            return

    def peak(self) -> int:
        """Most bytes in use since the reset."""
        try:
            # Beside this mark, ru_maxrss holds that of the program before an exec, which no reset changes.
            status = Path("/proc/self/status").read_text()
            return 1024 * int(status.partition("VmHWM:")[2].split(maxsplit=1)[0])
        except (OSError, IndexError, ValueError):
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            return peak if sys.platform == "darwin" else 1024 * peak  # bytes on macOS, KiB elsewhere

    def limit(self) -> int:
        """Bytes of the machine, or of the container."""
        import psutil

        return min([int(psutil.virtual_memory().total), *_container_limits()])

    def highest(self) -> int:
        """Most bytes in use so far, whatever was reset."""
        return max(_highest["process"], self.peak())


MemoryMeter = CudaMeter | ProcessMeter


def memory_meter(device: torch.device | None) -> MemoryMeter:
    """The meter for what runs on a device."""
    return CudaMeter(device) if device is not None and device.type == "cuda" else ProcessMeter()


def peak_memory_mib(device: torch.device | None) -> float:
    """Peak memory so far: the accelerator's, else the process's resident set."""
    return memory_meter(device).highest() / MIB


class PhaseMemory:
    """Peak memory of the phases of a step.

    Args:
        meter: Measures them.

    Attributes:
        latest: Peak of each phase when it last ran, by its metric's name.
        highest: Highest of all its peaks.
    """

    def __init__(self, meter: MemoryMeter) -> None:
        self._meter = meter
        self.latest: dict[str, float] = {}
        self.highest: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Measure the block as `memory/NAME_mib`."""
        self._meter.reset()
        yield
        metric, peak = f"memory/{name}_mib", self._meter.peak() / MIB
        self.latest[metric] = peak
        self.highest[metric] = max(peak, self.highest.get(metric, 0.0))


def _container_limits() -> Iterator[int]:
    for name in CGROUP_LIMITS:
        try:
            yield int(Path(name).read_text())
        except (OSError, ValueError):  # no such file, or "max"
            continue
